import type { Duplex } from "node:stream";
import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import { LinkError } from "../connection/link-state.ts";

/** A reverse connection: an SSH connection that a machine has opened to graftlet. */
export interface Dialled {
  /** Opens a connection to the address that the machine forwards to, its sshd. */
  forward(signal: AbortSignal): Promise<Duplex>;
  close(): void;
}

/** The reverse connections of one machine. */
export interface DialledConnections {
  arrived(connection: Dialled): void;
  gone(connection: Dialled): void;
  /** Registers a listener for new reverse connections. @returns a function that removes it. */
  onArrival(listener: () => void): () => void;
  /** Opens a connection to the machine's sshd over the newest reverse connection that works; suspect ones are tried last.
   *  @throws LinkError NotDialledIn while there is no reverse connection. */
  open(signal: AbortSignal): Promise<Duplex>;
  /** Records whether a stream returned by `open` led to the machine's host key; if not, its reverse connection becomes suspect.
   *  @returns true if there is another reverse connection that is not suspect. */
  judge(opened: Duplex, isRight: boolean): boolean;
  close(): void;
}

/** Limit of reverse connections of one machine. More than one, since dead connections remain for a while after a machine has reconnected. */
const mostConnections = 4;
/** Time to wait for the machine to reconnect, and timeout for opening a stream over each reverse connection, milliseconds. */
const [patienceMs, eachMs] = [2_000, 4_000];

/** Tracks which reverse connections have led to the machine's host key. */
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
    /** Sorts suspect connections to the end. */
    inOrder: (connections: readonly Dialled[]) => [
      ...connections.filter((each) => !isInDoubt(each)),
      ...connections.filter(isInDoubt),
    ],
    /** Chooses a connection to evict: a stolen key must not displace the machine's own connection. @param old oldest first. */
    least: (old: readonly Dialled[]) => old.find(isInDoubt) ?? old.find((each) => !verdicts.has(each)) ?? old[0],
  };
}

/** @param name name of the node, for messages. */
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
      `${name} is connected, but its forwarded port does not reach an sshd (${messageOf(why)}): check the forward of its ssh -R, such as -R 22:127.0.0.1:22, and that sshd runs there.`,
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
        lastAt === undefined ? "not connected yet" : `not reconnected since ${new Date(lastAt).toISOString()}`;
      throw new LinkError(
        "NotDialledIn",
        "unavailable",
        `${name} has ${since}: check that its ssh -N -R runs, reaches graftlet's address and port, and uses a key of authorizedKeysFile.`,
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
