import type { Clock, Timer } from "../../src/lib/clock.ts";
import { CodedError, abortError, throwIfAborted } from "../../src/lib/errors.ts";
import type { Logger } from "../../src/lib/log.ts";
import type { SshConfig } from "./config.ts";
import { type Connection, nameOf, openConnection } from "./connection.ts";
import { LinkError, type LinkState, retryDelay } from "./link-state.ts";

/** The way to a target: SSH connections, made again when they break. One reconnect serves all who wait. */
export interface Link extends AsyncDisposable {
  state(): LinkState;
  /** Calls back after each change of state. @returns what ends it. */
  onChange(listener: (state: LinkState) => void): () => void;
  /** Exchanges with the target so far: a request and its answer are one, as are requests sent together, and a login. */
  roundTrips(): number;
  /** Counts one exchange. */
  exchanged(): void;
  /** A live connection; waits while one is being made.
   *  @throws unavailable at once while the link is down, with the reason as its cause. */
  connection(signal?: AbortSignal): Promise<Connection>;
  /** All live connections, oldest first. */
  connections(): readonly Connection[];
  /** One more connection beside those that live; callers that ask together share it.
   *  @throws unavailable when it cannot be made, failed_precondition when there are as many as there may be. */
  another(signal?: AbortSignal): Promise<Connection>;
}

export interface LinkOptions {
  readonly config: SshConfig;
  readonly clock: Clock;
  readonly log: Logger;
  /** Makes a connection; of ssh2 unless a test gives another. */
  readonly open?: (config: SshConfig, signal: AbortSignal) => Promise<Connection>;
}

/** The most connections to one target. */
const mostConnections = 3;
/** A link that was up for as long starts its delays afresh, ms. */
const steadyMs = 30_000;

type State =
  | { readonly is: "idle" }
  | {
      readonly is: "down";
      readonly since: number;
      readonly why: LinkError;
      readonly nextTryAt: number;
      readonly timer: Timer;
    }
  | { readonly is: "connecting"; readonly since: number; readonly ready: Promise<Connection> }
  | { readonly is: "up"; readonly since: number }
  | { readonly is: "closed" };

/** Makes the link; the first who asks for a connection makes it connect, and from then on it stays connected. */
export function createLink({ config, clock, log, open = openConnection }: LinkOptions): Link {
  const born = clock.now();
  const listeners = new Set<(state: LinkState) => void>();
  const live = new Set<Connection>();
  const closing = new AbortController();
  let state: State = { is: "idle" };
  let downSince = born;
  let failures = 0;
  let lastReason: LinkError["reason"] | undefined;
  let exchanges = 0;
  let growing: Promise<Connection> | undefined;

  const seen = (): LinkState => outside(state, { born, connections: live.size, config });
  const become = (next: State) => {
    state = next;
    for (const listener of listeners) listener(seen());
  };
  const goDown = (why: LinkError) => {
    failures = lastReason === why.reason ? failures + 1 : 1;
    lastReason = why.reason;
    const delay = retryDelay(why.reason, failures) * clock.jitter(0.8, 1.2);
    const timer = clock.after(delay, () => void connect().catch(() => undefined));
    log.warn({ err: why, reason: why.reason, retryInMs: Math.round(delay) }, "link is down");
    become({ is: "down", since: downSince, why, nextTryAt: clock.now() + delay, timer });
  };
  const adopt = (connection: Connection): Connection => {
    throwIfAborted(connection.lost);
    live.add(connection);
    connection.lost.addEventListener("abort", () => {
      live.delete(connection);
      if (state.is !== "up") return;
      if (live.size > 0) return become(state);
      downSince = clock.now();
      if (downSince - state.since >= steadyMs) failures = 0;
      goDown(reasonOf(connection.lost.reason));
    });
    return connection;
  };
  const connect = (): Promise<Connection> => {
    if (state.is === "connecting") return state.ready;
    const ready = attempt();
    become({ is: "connecting", since: clock.now(), ready });
    return ready;
  };
  const attempt = async (): Promise<Connection> => {
    // The state is "connecting" before anything here can fail.
    await Promise.resolve();
    try {
      const connection = adopt(await open(config, closing.signal));
      exchanges += 1;
      log.info({ target: nameOf(config) }, "link is up");
      become({ is: "up", since: clock.now() });
      return connection;
    } catch (error) {
      if (closing.signal.aborted) throw closedError();
      const why = reasonOf(error);
      goDown(why);
      throw unreachable(config, why);
    }
  };
  const grow = async (): Promise<Connection> => {
    if (live.size >= mostConnections)
      throw new CodedError("failed_precondition", `there are ${mostConnections} connections to the target already`);
    const connection = await open(config, closing.signal).catch((error: unknown) => {
      throw unreachable(config, reasonOf(error));
    });
    // Meanwhile the others may have been lost: then this one is not adopted beside a reconnect under way.
    if (state.is !== "up") {
      connection.close();
      throw unreachable(config, reasonOf(connection.lost.reason));
    }
    adopt(connection);
    become(state);
    return connection;
  };
  return {
    state: seen,
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    roundTrips: () => exchanges,
    exchanged: () => void (exchanges += 1),
    connections: () => [...live],
    async connection(signal) {
      throwIfAborted(signal);
      if (state.is === "closed") throw closedError();
      if (state.is === "down") throw unreachable(config, state.why);
      const [first] = live;
      return state.is === "up" && first ? first : unlessAborted(connect(), signal);
    },
    async another(signal) {
      throwIfAborted(signal);
      growing ??= grow().finally(() => {
        growing = undefined;
      });
      return unlessAborted(growing, signal);
    },
    async [Symbol.asyncDispose]() {
      if (state.is === "closed") return;
      const pending = state.is === "connecting" ? state.ready : undefined;
      if (state.is === "down") state.timer.cancel();
      become({ is: "closed" });
      closing.abort();
      for (const connection of live) connection.close();
      await Promise.allSettled([pending, growing]);
    },
  };
}

function outside(
  state: State,
  { born, connections, config }: { born: number; connections: number; config: SshConfig },
): LinkState {
  switch (state.is) {
    case "idle": {
      const why = new LinkError("LinkDown", "unavailable", `${nameOf(config)} has not been asked for yet.`);
      return { is: "down", since: born, why, nextTryAt: born };
    }
    case "down":
      return { is: "down", since: state.since, why: state.why, nextTryAt: state.nextTryAt };
    case "connecting":
      return { is: "connecting", since: state.since };
    case "up":
      return { is: "up", since: state.since, connections };
    case "closed":
      return state;
  }
}

function reasonOf(error: unknown): LinkError {
  if (error instanceof LinkError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new LinkError("LinkDown", "unavailable", message, { cause: error });
}

/** What every call gets while the target is out of reach, whatever the reason: a login that is refused is no answer to whether a
 *  file may be read. */
function unreachable(config: SshConfig, why: LinkError): CodedError {
  return new CodedError("unavailable", `${nameOf(config)} is out of reach: ${why.message}`, { cause: why });
}

function closedError(): CodedError {
  return new CodedError("unavailable", "the link to the target is closed");
}

/** Stops waiting when the signal aborts; the work goes on for those who wait still. */
export function unlessAborted<T>(work: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(abortError(signal));
    signal.addEventListener("abort", onAbort, { once: true });
    void work.then(resolve, reject).finally(() => signal.removeEventListener("abort", onAbort));
  });
}
