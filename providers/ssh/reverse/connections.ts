import type { Duplex } from "node:stream";
import type { Clock } from "../../../src/lib/clock.ts";
import type { Arrival } from "../../../src/seams/machine-listeners.ts";
import { messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import { LinkError } from "../connection/link-state.ts";
import { createSignal } from "../../../src/lib/signal.ts";

/** A reverse connection: an SSH connection that a machine has opened to graftlet. */
export interface ReverseConnection {
  /** Opens a connection to the address that the machine forwards to, its sshd. */
  forward(signal: AbortSignal): Promise<Duplex>;
  close(): void;
}

export type ReverseConnections = ReturnType<typeof createReverseConnections>;

/** Limit of reverse connections of one machine. It is more than one, since dead connections remain for a while after a machine
 *  has reconnected. */
const maxConnections = 4;
/** Time to wait for the machine to reconnect, and timeout for opening a stream over each reverse connection, milliseconds. */
const [reconnectTimeoutMs, openTimeoutMs] = [2_000, 4_000];

/** Tracks which reverse connections have led to the machine's host key. */
function createHostKeyRecords() {
  const records = new WeakMap<ReverseConnection, boolean>();
  const openedBy = new WeakMap<Duplex, ReverseConnection>();
  let isLastWrong = false;
  const isSuspect = (connection: ReverseConnection) => records.get(connection) === false;
  return {
    isInDoubt: isSuspect,
    opened: (stream: Duplex, by: ReverseConnection) => void openedBy.set(stream, by),
    report(stream: Duplex, isRight: boolean) {
      const connection = openedBy.get(stream);
      if (!connection) return;
      records.set(connection, isRight);
      isLastWrong = !isRight;
    },
    /** True if the last connection whose host key was seen led to a wrong one. */
    isLastWrong: () => isLastWrong,
    /** Sorts suspect connections to the end. */
    suspectsLast: (connections: readonly ReverseConnection[]) => [
      ...connections.filter((each) => !isSuspect(each)),
      ...connections.filter(isSuspect),
    ],
    /** Chooses a connection to evict: a stolen key must not displace the machine's own connection. @param old oldest first. */
    chooseEvicted: (old: readonly ReverseConnection[]) =>
      old.find(isSuspect) ?? old.find((each) => !records.has(each)) ?? old[0],
  };
}

/** Creates the set of a node's reverse connections. @param name name of the node, for messages. */
export function createReverseConnections(name: string, clock: Clock) {
  let live: readonly ReverseConnection[] = [];
  const hostKeys = createHostKeyRecords();
  const connected = createSignal();
  const changed = createSignal();
  /** When connections were added, monotonic milliseconds. */
  const addedAt = new WeakMap<ReverseConnection, number>();
  let lastLostAt: number | undefined;
  const openThroughAny = async (connections: readonly ReverseConnection[], signal: AbortSignal): Promise<Duplex> => {
    let why: unknown;
    for (const connection of connections) {
      try {
        const opened = await connection.forward(clock.within(openTimeoutMs, signal));
        hostKeys.opened(opened, connection);
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
  return {
    /** Registers a listener for new reverse connections. @returns a function that removes it. */
    onConnected: connected.subscribe,
    /** Registers a listener for changes of what `arrival` returns. @returns a function that removes it. */
    onChange: changed.subscribe,
    /** Returns the newest connection that is not suspect; undefined if there is none. */
    arrival(): Arrival | undefined {
      const newest = live.find((each) => !hostKeys.isInDoubt(each));
      const at = newest && addedAt.get(newest);
      return at === undefined ? undefined : { at, isDoubtful: hostKeys.isLastWrong() };
    },
    add(connection: ReverseConnection): void {
      addedAt.set(connection, clock.monotonic());
      live = [connection, ...live];
      if (live.length > maxConnections) {
        const evicted = hostKeys.chooseEvicted(live.slice(1).toReversed());
        live = live.filter((each) => each !== evicted);
        evicted?.close();
      }
      connected.send();
      changed.send();
    },
    remove(connection: ReverseConnection): void {
      if (live.includes(connection)) lastLostAt = clock.now();
      live = live.filter((each) => each !== connection);
      changed.send();
    },
    /** Opens a connection to the machine's sshd over the newest reverse connection that works; suspect ones are tried last.
     *  @throws LinkError ReverseTunnelDown while there is no reverse connection. */
    async open(signal: AbortSignal): Promise<Duplex> {
      if (live.length === 0)
        await nextConnection(connected.subscribe, clock.within(reconnectTimeoutMs, signal)).catch(() => undefined);
      throwIfAborted(signal);
      if (live.length > 0) return openThroughAny(hostKeys.suspectsLast(live), signal);
      const since =
        lastLostAt === undefined ? "not connected yet" : `not reconnected since ${new Date(lastLostAt).toISOString()}`;
      throw new LinkError(
        "ReverseTunnelDown",
        "unavailable",
        `${name} has ${since}: check that its ssh -N -R runs, reaches graftlet's address and port, and uses a key from authorizedKeysFile.`,
      );
    },
    /** Records whether a stream returned by `open` led to the machine's host key; if not, its reverse connection becomes suspect.
     *  @returns true if there is another reverse connection that is not suspect. */
    reportHostKey(opened: Duplex, isRight: boolean): boolean {
      hostKeys.report(opened, isRight);
      changed.send();
      return live.some((each) => !hostKeys.isInDoubt(each));
    },
    close(): void {
      const closing = live;
      live = [];
      for (const connection of closing) connection.close();
      changed.send();
    },
  };
}

async function nextConnection(onConnected: ReverseConnections["onConnected"], deadline: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = onConnected(resolve);
  try {
    await untilAborted(promise, deadline);
  } finally {
    stop();
  }
}
