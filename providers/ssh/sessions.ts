import type { ClientChannel } from "ssh2";
import type { Clock } from "../../src/lib/clock.ts";
import { CodedError, abortError, hasCode, throwIfAborted } from "../../src/lib/errors.ts";
import { type Connection, channelRefusal, opened } from "./connection.ts";
import type { Link } from "./link.ts";

/** A session channel, and the connection that it is on. It counts against that connection until it is closed. */
export interface Session {
  readonly channel: ClientChannel;
  readonly connection: Connection;
}

export interface SessionRequest {
  /** A command line for the login shell, or the name of a subsystem. */
  readonly start: { readonly exec: string } | { readonly subsystem: string };
  /** May take the place that is kept free for killing what hangs. */
  readonly urgent?: boolean;
  readonly signal?: AbortSignal;
}

/** Opens session channels, a bounded number on each connection; further ones take another connection, or wait. */
export interface Sessions {
  /** @throws unavailable, failed_precondition when the target refuses what is started. */
  open(request: SessionRequest): Promise<Session>;
}

/** How long a connection that could not be added is not tried again, ms (MaxStartups, a firewall). */
const growPauseMs = 10_000;

export function createSessions({ link, clock }: { readonly link: Link; readonly clock: Clock }): Sessions {
  const waiting = new Set<() => void>();
  let growAgainAt = 0;

  const wake = () => {
    for (const each of waiting) each();
  };
  link.onChange(wake);
  const release = (connection: Connection) => {
    connection.sessions -= 1;
    wake();
  };
  /** A connection with room, its place taken; undefined when all are full. */
  const take = (urgent: boolean): Connection | undefined => {
    const found = link.connections().find(({ sessions, limit }) => sessions < roomOf(limit, urgent));
    if (found) found.sessions += 1;
    return found;
  };
  const place = async (urgent: boolean, signal?: AbortSignal): Promise<Connection> => {
    for (;;) {
      await link.connection(signal);
      const found = take(urgent);
      if (found) return found;
      if (clock.monotonic() >= growAgainAt) {
        await link.another(signal).catch((error: unknown) => {
          throwIfAborted(signal);
          growAgainAt = clock.monotonic() + growPauseMs;
          if (!hasCode(error, "failed_precondition", "unavailable")) throw error;
        });
        continue;
      }
      await turn(waiting, signal);
    }
  };
  return {
    async open({ start, urgent = false, signal }) {
      for (;;) {
        const connection = await place(urgent, signal);
        try {
          const channel = await openChannel(connection, start, signal);
          // The channel, and what starts on it.
          link.exchanged();
          link.exchanged();
          channel.once("close", () => release(connection));
          return { channel, connection };
        } catch (error) {
          release(connection);
          if (channelRefusal(error) === undefined || connection.lost.aborted) throw openError(connection, start, error);
          if (connection.sessions === 0) throw noSessions(error);
          // The target allows fewer sessions than is usual: as many as there are.
          connection.limit = Math.min(connection.limit, connection.sessions);
        }
      }
    },
  };
}

/** One place of each connection is kept for what must not wait. */
function roomOf(limit: number, urgent: boolean): number {
  return urgent ? limit : Math.max(1, limit - 1);
}

async function openChannel(
  { client, lost }: Connection,
  start: SessionRequest["start"],
  signal?: AbortSignal,
): Promise<ClientChannel> {
  if (lost.aborted) throw abortError(lost);
  const channel = opened((done) => {
    if ("exec" in start) client.exec(start.exec, done);
    else client.subsys(start.subsystem, done);
  });
  if (!signal) return channel;
  const onAbort = Promise.withResolvers<never>();
  const abort = () => onAbort.reject(abortError(signal));
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([channel, onAbort.promise]);
  } catch (error) {
    void channel.then(discard, () => undefined);
    throw error;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Closes a channel that nobody will read: its close is told only once all that it said has been taken. */
export function discard(channel: ClientChannel): void {
  channel.on("error", () => undefined);
  channel.resume();
  channel.stderr.resume();
  channel.close();
}

function openError({ lost }: Connection, start: SessionRequest["start"], error: unknown): unknown {
  if (error instanceof CodedError) return error;
  if (lost.aborted) return new CodedError("unavailable", abortError(lost).message, { cause: error });
  const what = "exec" in start ? "commands" : `the subsystem ${start.subsystem}`;
  return new CodedError("failed_precondition", `the target's sshd refuses ${what} to this user`, { cause: error });
}

function noSessions(cause: unknown): CodedError {
  return new CodedError(
    "failed_precondition",
    "the target's sshd allows no sessions: set MaxSessions to 10 in its sshd_config.",
    { cause },
  );
}

/** Resolves when a place may have become free. */
function turn(waiting: Set<() => void>, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (settle: () => void) => () => {
      waiting.delete(proceed);
      signal?.removeEventListener("abort", stop);
      settle();
    };
    const proceed = end(resolve);
    const stop = end(() => signal && reject(abortError(signal)));
    waiting.add(proceed);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
