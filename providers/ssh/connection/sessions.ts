import type { ClientChannel } from "ssh2";
import type { Clock } from "../../../src/lib/clock.ts";
import { CodedError, abortError, hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import { type Connection, channelRefusal, opened } from "./connection.ts";
import { LinkError } from "./link-state.ts";
import type { Link } from "./link.ts";

/** A session channel and its connection. It counts towards that connection's limit until it is closed. */
export interface Session {
  readonly channel: ClientChannel;
  readonly connection: Connection;
}

export interface SessionRequest {
  /** A command line for the login shell, or the name of a subsystem. */
  readonly start: { readonly exec: string } | { readonly subsystem: string };
  /** May use the place reserved for killing hung commands. */
  readonly urgent?: boolean;
  /** True for requests of kubelet API users, who get at most half of the places. */
  readonly forUser?: boolean;
  readonly signal?: AbortSignal;
}

/** Opens session channels, limited per connection; further ones use another connection, or wait. */
export interface Sessions {
  /** @throws unavailable, failed_precondition when the target refuses the request. */
  open(request: SessionRequest): Promise<Session>;
  /** Opens a session on this connection, which may not be the link's yet.
   *  @throws LinkError NoSessions when the target allows none, failed_precondition, unavailable, the signal's reason. */
  openOn(connection: Connection, start: SessionRequest["start"], signal: AbortSignal): Promise<Session>;
}

export interface SessionsOptions {
  readonly link: Link;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Pause after a failed attempt to add a connection, ms, before jitter (MaxStartups, a firewall). */
const growPauseMs = 5_000;
/** Time for which an ended session may still count at the target's sshd, ms. */
const settleMs = 200;
/** ssh2 fails at once when the peer has hung up, and reports the lost connection a moment later, ms. */
const hangUpMs = 250;
/** Time for the target to answer a request for a session, ms. */
const openWithinMs = 60_000;
/** Least interval between warnings about sessions that have to wait, ms. */
const tellEveryMs = 60_000;

export function createSessions({ link, clock, log }: SessionsOptions): Sessions {
  const places = createPlaces({ link, clock, log });
  const start = async (
    connection: Connection,
    { start: what, forUser = false, signal }: SessionRequest,
  ): Promise<Session> => {
    const channel = await openChannel(connection, what, clock.within(openWithinMs, signal));
    // One for the channel, one for the request on it.
    link.exchanged();
    link.exchanged();
    channel.once("close", () => places.release(connection, forUser));
    return { channel, connection };
  };
  /** Decides whether to repeat a refused request: sshd may not have noticed the end of a session yet. */
  const unsettled = async (connection: Connection, error: unknown, signal?: AbortSignal): Promise<boolean> => {
    if (channelRefusal(error) === undefined || connection.lost.aborted || !places.justReleased(connection))
      return false;
    await clock.sleep(settleMs / 4, signal);
    return true;
  };
  return {
    async open(request) {
      const { start: what, forUser = false, signal } = request;
      for (;;) {
        const connection = await places.take(request);
        try {
          return await start(connection, request);
        } catch (error) {
          places.giveBack(connection, forUser);
          if (await unsettled(connection, error, signal)) continue;
          if (channelRefusal(error) === undefined || connection.lost.aborted) {
            if (!(error instanceof CodedError)) await clock.sleep(hangUpMs, connection.lost).catch(() => undefined);
            throw openError(connection, what, error);
          }
          if (connection.sessions === 0) throw noSessions(error);
          // The target allows fewer sessions than usual: the present number is the limit.
          connection.limit = Math.min(connection.limit, connection.sessions);
        }
      }
    },
    async openOn(connection, what, signal) {
      for (;;) {
        connection.sessions += 1;
        try {
          return await start(connection, { start: what, signal });
        } catch (error) {
          places.giveBack(connection, false);
          if (await unsettled(connection, error, signal)) continue;
          throw channelRefusal(error) === undefined ? openError(connection, what, error) : noSessions(error);
        }
      }
    },
  };
}

/** Manages the places for sessions on the link's connections. */
function createPlaces({ link, clock, log }: SessionsOptions) {
  const waiting = new Set<() => void>();
  let growAgainAt = 0;
  let tellAgainAt = 0;
  const releasedAt = new WeakMap<Connection, number>();
  const wake = () => {
    for (const each of waiting) each();
  };
  link.onChange(wake);
  /** @returns false when no further connection can be opened now. */
  const grow = async (signal?: AbortSignal): Promise<boolean> => {
    if (clock.monotonic() < growAgainAt) return false;
    try {
      await link.another(signal);
      return true;
    } catch (error) {
      throwIfAborted(signal);
      if (!hasCode(error, "failed_precondition", "unavailable")) throw error;
      if (hasCode(error, "unavailable")) growAgainAt = clock.monotonic() + growPauseMs * clock.jitter(1, 2);
      return false;
    }
  };
  const rest = async ({ forUser = false, signal }: PlaceRequest): Promise<void> => {
    if (clock.monotonic() >= tellAgainAt) {
      tellAgainAt = clock.monotonic() + tellEveryMs;
      log.warn(
        usage(link.connections()),
        forUser
          ? "as many sessions on the target are in use as users may have, a user waits"
          : "all sessions on the target are in use, what needs one waits",
      );
    }
    const pauseMs = growAgainAt - clock.monotonic();
    await turn(waiting, signal, pauseMs > 0 ? { pauseMs, clock } : undefined);
  };
  const giveBack = (connection: Connection, forUser: boolean) => {
    connection.sessions -= 1;
    if (forUser) connection.forUsers -= 1;
    wake();
  };
  return {
    /** Returns an unused place. */
    giveBack,
    /** Returns the place of an ended session. */
    release(connection: Connection, forUser: boolean) {
      releasedAt.set(connection, clock.monotonic());
      giveBack(connection, forUser);
    },
    justReleased: (connection: Connection) =>
      clock.monotonic() - (releasedAt.get(connection) ?? Number.NEGATIVE_INFINITY) < settleMs,
    /** Takes a place on a connection with room. */
    async take(request: PlaceRequest): Promise<Connection> {
      const { urgent = false, forUser = false, signal } = request;
      for (;;) {
        await link.connection(signal);
        const found =
          forUser && !usersHaveRoom(link.connections())
            ? undefined
            : link.connections().find(({ sessions, limit }) => sessions < roomOf(limit, urgent));
        if (found) {
          found.sessions += 1;
          if (forUser) found.forUsers += 1;
          return found;
        }
        // Without any connection, the link gives the reason.
        if (!(await grow(signal)) && link.connections().length > 0) await rest(request);
      }
    },
  };
}

type PlaceRequest = Omit<SessionRequest, "start">;

/** True while users hold less than half of the current places. A new connection may allow as few sessions as the others. */
function usersHaveRoom(connections: readonly Connection[]): boolean {
  const held = connections.reduce((sum, { forUsers }) => sum + forUsers, 0);
  return held + 1 <= (connections.length * Math.min(...connections.map(({ limit }) => limit))) / 2;
}

function usage(connections: readonly Connection[]) {
  return {
    connections: connections.length,
    sessions: connections.map(({ sessions }) => sessions),
    users: connections.map(({ forUsers }) => forUsers),
    allowed: connections.map(({ limit }) => limit),
  };
}

/** Reserves one place per connection for urgent requests. */
function roomOf(limit: number, urgent: boolean): number {
  return urgent ? limit : Math.max(1, limit - 1);
}

async function openChannel(
  { client, lost }: Connection,
  start: SessionRequest["start"],
  signal: AbortSignal,
): Promise<ClientChannel> {
  if (lost.aborted) throw abortError(lost);
  const channel = opened((done) => {
    if ("exec" in start) client.exec(start.exec, done);
    else client.subsys(start.subsystem, done);
  });
  try {
    return await untilAborted(untilAborted(channel, lost), signal);
  } catch (error) {
    void channel.then(discard, () => undefined);
    throw error;
  }
}

/** Closes an unread channel: ssh2 reports the close only after all output has been read. */
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

function noSessions(cause: unknown): LinkError {
  return new LinkError(
    "NoSessions",
    "unavailable",
    "the target's sshd allows no sessions: set MaxSessions to 10 in its sshd_config.",
    { cause },
  );
}

/** Resolves when a place may be free, or when the pause is over. */
async function turn(
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
