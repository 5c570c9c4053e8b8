import type { Duplex } from "node:stream";
import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import { LinkError } from "../connection/link-state.ts";

/** A connection that a machine has dialled in with. */
export interface Dialled {
  /** Has the machine open a connection to what it forwards to: its sshd. */
  forward(signal: AbortSignal): Promise<Duplex>;
  close(): void;
}

/** The connections that one machine has dialled in with. */
export interface DialledConnections {
  arrived(connection: Dialled): void;
  gone(connection: Dialled): void;
  /** Calls back when the machine has dialled in. @returns what stops that. */
  onArrival(listener: () => void): () => void;
  /** Opens a connection to the machine's sshd, by the newest of its connections that answers; those in doubt come last.
   *  @throws LinkError NotDialledIn while there is none. */
  open(signal: AbortSignal): Promise<Duplex>;
  /** Reports whether what `open` returned led to the machine's host key.
   *  @returns true if `open` has another connection to try that is not in doubt. */
  judge(opened: Duplex, isRight: boolean): boolean;
  close(): void;
}

/** Connections that a machine may hold; the oldest is closed for another. One that lost its link leaves dead ones for a while. */
const mostConnections = 4;
/** How long a machine that has just lost its connection is waited for, and how long each connection may take, milliseconds. */
const [patienceMs, eachMs] = [2_000, 4_000];

/** What is known of where connections lead. */
function createVerdicts() {
  const verdicts = new WeakMap<Dialled, boolean>();
  const openedBy = new WeakMap<Duplex, Dialled>();
  const isInDoubt = (connection: Dialled) => verdicts.get(connection) === false;
  return {
    isInDoubt,
    opened: (stream: Duplex, by: Dialled) => void openedBy.set(stream, by),
    judge(stream: Duplex, isRight: boolean) {
      const connection = openedBy.get(stream);
      if (connection) verdicts.set(connection, isRight);
    },
    /** Those in doubt come last. */
    inOrder: (connections: readonly Dialled[]) => [
      ...connections.filter((each) => !isInDoubt(each)),
      ...connections.filter(isInDoubt),
    ],
    /** The one to close for another: a stolen key must not push the machine's own connection out. @param old oldest first. */
    least: (old: readonly Dialled[]) => old.find(isInDoubt) ?? old.find((each) => !verdicts.has(each)) ?? old[0],
  };
}

/** Creates them. @param name of the node, for messages. */
export function createDialledConnections(name: string, clock: Clock): DialledConnections {
  let live: readonly Dialled[] = [];
  const verdicts = createVerdicts();
  const listeners = new Set<() => void>();
  let lastAt: number | undefined;
  const throughOneOf = async (connections: readonly Dialled[], signal: AbortSignal): Promise<Duplex> => {
    let why: unknown;
    for (const connection of connections) {
      try {
        const opened = await connection.forward(clock.within(eachMs, signal));
        verdicts.opened(opened, connection);
        return opened;
      } catch (error) {
        throwIfAborted(signal);
        why = error;
      }
    }
    throw new LinkError(
      "LinkDown",
      "unavailable",
      `the machine of ${name} has dialled in, and leads to no sshd (${messageOf(why)}): check the forward of its ssh -R, such as -R 22:127.0.0.1:22, and that sshd runs there.`,
      { cause: why },
    );
  };
  const onArrival = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  return {
    onArrival,
    arrived(connection) {
      live = [connection, ...live];
      if (live.length > mostConnections) {
        const least = verdicts.least(live.slice(1).toReversed());
        live = live.filter((each) => each !== least);
        least?.close();
      }
      for (const listener of listeners) listener();
    },
    gone(connection) {
      if (live.includes(connection)) lastAt = clock.now();
      live = live.filter((each) => each !== connection);
    },
    async open(signal) {
      if (live.length === 0) await arrival(onArrival, clock.within(patienceMs, signal)).catch(() => undefined);
      throwIfAborted(signal);
      if (live.length > 0) return throughOneOf(verdicts.inOrder(live), signal);
      const since =
        lastAt === undefined ? "not dialled in yet" : `not dialled in again since ${new Date(lastAt).toISOString()}`;
      throw new LinkError(
        "NotDialledIn",
        "unavailable",
        `the machine of ${name} has ${since}: check that its ssh -N -R runs, reaches graftlet's address and port, and uses a key of authorizedKeysFile.`,
      );
    },
    judge(opened, isRight) {
      verdicts.judge(opened, isRight);
      return live.some((each) => !verdicts.isInDoubt(each));
    },
    close() {
      const closing = live;
      live = [];
      for (const connection of closing) connection.close();
    },
  };
}

async function arrival(onArrival: DialledConnections["onArrival"], soon: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = onArrival(resolve);
  try {
    await untilAborted(promise, soon);
  } finally {
    stop();
  }
}
