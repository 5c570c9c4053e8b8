import type { ClientChannel } from "ssh2";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, abortError, hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import { type Connection, channelRefusal, fromCallback } from "./connection.ts";
import { LinkError } from "./link-state.ts";
import type { Link } from "./link.ts";

/** A session channel and its connection. The session counts towards the connection's limit until it is closed. */
export interface Session {
  readonly channel: ClientChannel;
  readonly connection: Connection;
}

export interface SessionRequest {
  /** A command line for the login shell, or the name of a subsystem. */
  readonly start: { readonly exec: string } | { readonly subsystem: string };
  /** True to use the slot reserved for killing hung commands. */
  readonly urgent?: boolean;
  /** True for requests of kubelet API users, who get at most half of the slots. */
  readonly forUser?: boolean;
  readonly signal?: AbortSignal;
}

/** Opens session channels, limited per connection. Beyond the limit a request uses another connection, or waits. */
export type Sessions = ReturnType<typeof createSessions>;

export interface SessionsOptions extends ClockAndLog {
  readonly link: Link;
}

/** Pause after a failed attempt to add a connection, ms, before jitter (MaxStartups, a firewall). */
const openRetryDelayMs = 5_000;
/** Time for which the target's sshd may still count an ended session, ms. */
const endedSessionGraceMs = 200;
/** After a request has failed because the peer hung up: time to wait for ssh2 to report the loss of the connection, ms. */
const hangUpTimeoutMs = 250;
/** Time for the target to answer a request for a session, ms. */
const openTimeoutMs = 60_000;
/** Minimum interval between warnings about waiting requests, ms. */
const warnIntervalMs = 60_000;

export function createSessions({ link, clock, log }: SessionsOptions) {
  const slots = createSessionSlots({ link, clock, log });
  const start = async (
    connection: Connection,
    { start: what, forUser = false, signal }: SessionRequest,
  ): Promise<Session> => {
    const channel = await openChannel(connection, what, clock.within(openTimeoutMs, signal));
    // Opening the channel is one exchange, the request on it another.
    link.countExchange();
    link.countExchange();
    channel.once("close", () => slots.release(connection, forUser));
    return { channel, connection };
  };
  /** Decides whether to repeat a refused request: sshd may still count a session that has just ended. */
  const shouldRepeat = async (connection: Connection, error: unknown, signal?: AbortSignal): Promise<boolean> => {
    if (channelRefusal(error) === undefined || connection.lost.aborted || !slots.justReleased(connection)) return false;
    await clock.sleep(endedSessionGraceMs / 4, signal);
    return true;
  };
  return {
    /** @throws unavailable, failed_precondition when the target refuses the request. */
    async open(request: SessionRequest): Promise<Session> {
      const { start: what, forUser = false, signal } = request;
      for (;;) {
        const connection = await slots.acquire(request);
        try {
          return await start(connection, request);
        } catch (error) {
          slots.giveBack(connection, forUser);
          if (await shouldRepeat(connection, error, signal)) continue;
          if (channelRefusal(error) === undefined || connection.lost.aborted) {
            if (!(error instanceof CodedError))
              await clock.sleep(hangUpTimeoutMs, connection.lost).catch(() => undefined);
            throw openError(connection, what, error);
          }
          if (connection.sessions === 0) throw noSessions(error);
          // The target allows fewer sessions than usual: the current number is its limit.
          connection.sessionLimit = Math.min(connection.sessionLimit, connection.sessions);
        }
      }
    },
    /** Opens a session on this connection, which may not have been added to the link yet.
     *  @throws LinkError NoSessions when the target allows none, failed_precondition, unavailable, the signal's reason. */
    async openOn(connection: Connection, what: SessionRequest["start"], signal?: AbortSignal): Promise<Session> {
      for (;;) {
        connection.sessions += 1;
        try {
          return await start(connection, { start: what, ...(signal && { signal }) });
        } catch (error) {
          slots.giveBack(connection, false);
          if (await shouldRepeat(connection, error, signal)) continue;
          throw channelRefusal(error) === undefined ? openError(connection, what, error) : noSessions(error);
        }
      }
    },
  };
}

/** Opens sessions on this connection only. */
export function sessionsOn({ openOn }: Pick<Sessions, "openOn">, connection: Connection): Pick<Sessions, "open"> {
  return { open: ({ start, signal }) => openOn(connection, start, signal) };
}

/** Manages the slots for sessions on the link's connections. */
function createSessionSlots({ link, clock, log }: SessionsOptions) {
  const waiting = new Set<() => void>();
  let nextOpenAt = 0;
  let nextWarningAt = 0;
  const releasedAt = new WeakMap<Connection, number>();
  const wake = () => {
    for (const each of waiting) each();
  };
  link.onChange(wake);
  /** Opens another connection. @returns false when no further connection can be opened now. */
  const openAnother = async (signal?: AbortSignal): Promise<boolean> => {
    if (clock.monotonic() < nextOpenAt) return false;
    try {
      await link.openAnother(signal);
      return true;
    } catch (error) {
      throwIfAborted(signal);
      if (!hasCode(error, "failed_precondition", "unavailable")) throw error;
      if (hasCode(error, "unavailable")) nextOpenAt = clock.monotonic() + openRetryDelayMs * clock.jitter(1, 2);
      return false;
    }
  };
  const waitForSlot = async ({ forUser = false, signal }: SlotRequest): Promise<void> => {
    if (clock.monotonic() >= nextWarningAt) {
      nextWarningAt = clock.monotonic() + warnIntervalMs;
      log.warn(
        usage(link.connections()),
        forUser ? "user session limit reached; queueing" : "all SSH sessions in use; queueing",
      );
    }
    const pauseMs = nextOpenAt - clock.monotonic();
    await waitForWake(waiting, signal, pauseMs > 0 ? { pauseMs, clock } : undefined);
  };
  const releaseUnused = (connection: Connection, forUser: boolean) => {
    connection.sessions -= 1;
    if (forUser) connection.userSessions -= 1;
    wake();
  };
  return {
    /** Gives back a slot that was not used. */
    giveBack: releaseUnused,
    /** Frees the slot of an ended session. */
    release(connection: Connection, forUser: boolean) {
      releasedAt.set(connection, clock.monotonic());
      releaseUnused(connection, forUser);
    },
    justReleased: (connection: Connection) =>
      clock.monotonic() - (releasedAt.get(connection) ?? Number.NEGATIVE_INFINITY) < endedSessionGraceMs,
    /** Acquires a slot for a session; waits until a connection has a free one. */
    async acquire(request: SlotRequest): Promise<Connection> {
      const { urgent = false, forUser = false, signal } = request;
      for (;;) {
        await link.connection(signal);
        const found =
          forUser && !usersHaveRoom(link.connections())
            ? undefined
            : link.connections().find(({ sessions, sessionLimit }) => sessions < usableLimit(sessionLimit, urgent));
        if (found) {
          found.sessions += 1;
          if (forUser) found.userSessions += 1;
          return found;
        }
        // Without any connection, link.connection reports the reason.
        if (!(await openAnother(signal)) && link.connections().length > 0) await waitForSlot(request);
      }
    },
  };
}

type SlotRequest = Omit<SessionRequest, "start">;

/** True while users of the kubelet API hold less than half of the current slots. A new connection is assumed to allow as few
 *  sessions as the others. */
function usersHaveRoom(connections: readonly Connection[]): boolean {
  const held = connections.reduce((sum, { userSessions }) => sum + userSessions, 0);
  return held + 1 <= (connections.length * Math.min(...connections.map(({ sessionLimit }) => sessionLimit))) / 2;
}

function usage(connections: readonly Connection[]) {
  return {
    connections: connections.length,
    sessions: connections.map(({ sessions }) => sessions),
    users: connections.map(({ userSessions }) => userSessions),
    allowed: connections.map(({ sessionLimit }) => sessionLimit),
  };
}

/** Reserves one slot per connection for urgent requests. */
function usableLimit(limit: number, urgent: boolean): number {
  return urgent ? limit : Math.max(1, limit - 1);
}

async function openChannel(
  { client, lost }: Connection,
  start: SessionRequest["start"],
  signal: AbortSignal,
): Promise<ClientChannel> {
  if (lost.aborted) throw abortError(lost);
  const channel = fromCallback((done) => {
    if ("exec" in start) client.exec(start.exec, done);
    else client.subsys(start.subsystem, done);
  });
  try {
    return await untilAborted(untilAborted(channel, lost), signal);
  } catch (error) {
    void channel.then(discardChannel, () => undefined);
    throw error;
  }
}

/** Closes a channel and drops its unread output: ssh2 reports the close only after all output has been read. */
export function discardChannel(channel: ClientChannel): void {
  channel.on("error", () => undefined);
  channel.resume();
  channel.stderr.resume();
  channel.close();
}

function openError({ lost }: Connection, start: SessionRequest["start"], error: unknown): unknown {
  if (error instanceof CodedError) return error;
  if (lost.aborted) return new CodedError("unavailable", abortError(lost).message, { cause: error });
  const what = "exec" in start ? "commands" : `the subsystem ${start.subsystem}`;
  return new CodedError("failed_precondition", `the target's sshd denies this user ${what}`, { cause: error });
}

function noSessions(cause: unknown): LinkError {
  return new LinkError(
    "NoSessions",
    "unavailable",
    "the target's sshd allows no sessions: set MaxSessions to 10 in its sshd_config.",
    { cause },
  );
}

/** Resolves when a slot may be free, or when the pause is over. */
async function waitForWake(
  waiting: Set<() => void>,
  signal: AbortSignal | undefined,
  until: { readonly pauseMs: number; readonly clock: Clock } | undefined,
): Promise<void> {
  const woken = Promise.withResolvers<void>();
  const over = new AbortController();
  waiting.add(woken.resolve);
  const pause = until?.clock.sleep(until.pauseMs, over.signal).then(woken.resolve, () => undefined);
  try {
    await untilAborted(woken.promise, signal);
  } finally {
    over.abort();
    waiting.delete(woken.resolve);
    await pause;
  }
}
