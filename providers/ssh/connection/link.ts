import type { Clock, Timer } from "../../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";
import { untilAborted } from "../../../src/lib/service-group.ts";
import type { SshConfig } from "../config.ts";
import type { ReverseWay } from "../reverse/way.ts";
import { type Connection, nameOf, openConnection, wentSilent } from "./connection.ts";
import { exceedsLimit } from "./limit-exceeded.ts";
import { LinkError, type LinkState, retryDelay } from "./link-state.ts";

/** Link to a target: a set of SSH connections that is re-established when it breaks. All waiting callers share one reconnect. */
export interface Link extends AsyncDisposable {
  state(): LinkState;
  /** Registers a listener for state changes. @returns a function that removes it. */
  onChange(listener: (state: LinkState) => void): () => void;
  /** Number of exchanges with the target so far. A request with its answer, a batch of requests, a runtime call and a login count as one
   *  each; concurrent exchanges count separately. */
  roundTrips(): number;
  /** Counts one exchange. */
  exchanged(): void;
  /** Returns a live connection; waits for one that is being established.
   *  @throws unavailable at once while the link is down, with the reason as cause. */
  connection(signal?: AbortSignal): Promise<Connection>;
  /** Returns all live connections, oldest first. */
  connections(): readonly Connection[];
  /** Opens one more connection; concurrent callers share it.
   *  @throws unavailable when it cannot be opened, failed_precondition at the limit. */
  another(signal?: AbortSignal): Promise<Connection>;
  /** Takes the link down with this reason: closes its connections, then reconnects after a delay. */
  fail(why: LinkError): void;
}

export interface LinkOptions {
  readonly config: SshConfig;
  readonly clock: Clock;
  readonly log: Logger;
  /** The reverse tunnel, if the first machine connects to graftlet. */
  readonly reverse?: ReverseWay;
  /** Opens a connection; uses ssh2 by default. */
  readonly open?: (config: SshConfig, signal: AbortSignal) => Promise<Connection>;
  /** Checks a new connection before the link counts as up. @throws LinkError when the target does not meet the requirements. */
  readonly check?: (connection: Connection, signal: AbortSignal) => Promise<void>;
}

/** Number of concurrent sessions to allow for when the target allows few per connection. */
const sessionsWanted = 24;
const [fewestConnections, mostConnections] = [3, 12];
/** Uptime after which a link's retry delays are reset, ms. */
const steadyMs = 2_000;

/** States of the link's state machine:
 *  - `idle`: no connection has been requested yet. The first call of `connection` starts connecting. To the outside this is `down`.
 *  - `connecting`: one attempt is in progress; all callers of `connection` wait for it. It logs in and runs the check, then the link is
 *    `up`, or on any error `down`.
 *  - `up`: there is at least one live connection, which calls get at once. `another` may add connections. The link stays up while
 *    connections are lost one by one; the loss of the last one, of one whose peer stopped answering or exceeded a limit, and `fail`
 *    take it `down`.
 *  - `down`: no connection, and no attempt in progress; calls fail at once with the reason. `timer` starts the next attempt after a
 *    delay that grows with consecutive failures for the same reason; a new reverse connection starts it at once, where that may help.
 *  - `closed`: disposed. All connections are closed and calls fail; the link never leaves this state. */
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

/** Creates a link, which connects on first use and stays connected. */
export function createLink(options: LinkOptions): Link {
  return new SshLink(options);
}

class SshLink implements Link {
  readonly #config: SshConfig;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #open: NonNullable<LinkOptions["open"]>;
  readonly #check: LinkOptions["check"];
  readonly #listeners = new Set<(state: LinkState) => void>();
  readonly #live = new Set<Connection>();
  readonly #closing = new AbortController();
  readonly #createdAt: number;
  #state: State = { is: "idle" };
  #downSince: number;
  /** Consecutive failures for the last reason. */
  #failures = 0;
  #lastReason: LinkError["reason"] | undefined;
  #exchanges = 0;
  #opening: Promise<Connection> | undefined;

  constructor({ config, clock, log, reverse, open, check }: LinkOptions) {
    this.#config = config;
    this.#clock = clock;
    this.#log = log;
    this.#open = open ?? ((to, signal) => openConnection(to, { clock, ...(reverse && { reverse }) }, signal));
    reverse?.onArrival(() => this.#retryNow());
    this.#check = check;
    this.#createdAt = clock.now();
    this.#downSince = this.#createdAt;
  }

  state(): LinkState {
    return outside(this.#state, { born: this.#createdAt, connections: this.#live.size, config: this.#config });
  }

  onChange(listener: (state: LinkState) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  roundTrips(): number {
    return this.#exchanges;
  }

  exchanged(): void {
    this.#exchanges += 1;
    this.#log.trace({ exchanges: this.#exchanges }, "exchange with the target");
  }

  connections(): readonly Connection[] {
    return [...this.#live];
  }

  async connection(signal?: AbortSignal): Promise<Connection> {
    throwIfAborted(signal);
    const state = this.#state;
    if (state.is === "closed") throw closedError();
    if (state.is === "down") throw unreachable(this.#config, state.why);
    const [first] = this.#live;
    return state.is === "up" && first ? first : untilAborted(this.#connect(), signal);
  }

  async another(signal?: AbortSignal): Promise<Connection> {
    throwIfAborted(signal);
    this.#opening ??= this.#openAnother().finally(() => {
      this.#opening = undefined;
    });
    return untilAborted(this.#opening, signal);
  }

  fail(why: LinkError): void {
    if (this.#state.is !== "up") return;
    this.#downSince = this.#clock.now();
    if (this.#downSince - this.#state.since >= steadyMs) this.#failures = 0;
    const live = [...this.#live];
    this.#goDown(why);
    for (const connection of live) connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const state = this.#state;
    if (state.is === "closed") return;
    if (state.is === "down") state.timer.cancel();
    this.#setState({ is: "closed" });
    this.#closing.abort();
    for (const connection of this.#live) connection.close();
    await Promise.allSettled([state.is === "connecting" ? state.ready : undefined, this.#opening]);
  }

  #setState(next: State): void {
    this.#state = next;
    for (const listener of this.#listeners) listener(this.state());
  }

  #connect(): Promise<Connection> {
    if (this.#state.is === "connecting") return this.#state.ready;
    const ready = this.#attempt();
    this.#setState({ is: "connecting", since: this.#clock.now(), ready });
    return ready;
  }

  /** Starts the next attempt at once when the machine has opened a reverse connection, unless the reason needs human action. After a
   *  host-key mismatch it is worth trying: that key may have been presented over another reverse connection. */
  #retryNow(): void {
    const state = this.#state;
    if (state.is !== "down" || !["NotDialledIn", "LinkDown", "HostKeyMismatch"].includes(state.why.reason)) return;
    state.timer.cancel();
    void this.#connect().catch(() => undefined);
  }

  async #attempt(): Promise<Connection> {
    // The caller has to set the state to "connecting" before anything here can fail.
    await Promise.resolve();
    try {
      const opened = await this.#open(this.#config, this.#closing.signal);
      this.#exchanges += 1;
      await this.#runCheck(opened);
      const connection = this.#addConnection(opened);
      this.#log.info({ target: nameOf(this.#config) }, "link is up");
      this.#setState({ is: "up", since: this.#clock.now() });
      return connection;
    } catch (error) {
      if (this.#closing.signal.aborted) throw closedError();
      const why = reasonOf(error);
      this.#goDown(why);
      throw unreachable(this.#config, why);
    }
  }

  async #runCheck(connection: Connection): Promise<void> {
    try {
      await this.#check?.(connection, AbortSignal.any([this.#closing.signal, connection.lost]));
    } catch (error) {
      const lost: unknown = connection.lost.aborted ? connection.lost.reason : undefined;
      connection.close();
      throw lost ?? error;
    }
  }

  #addConnection(connection: Connection): Connection {
    throwIfAborted(connection.lost);
    if (this.#closing.signal.aborted) {
      connection.close();
      throw closedError();
    }
    this.#live.add(connection);
    connection.lost.addEventListener("abort", () => this.#removeLost(connection));
    return connection;
  }

  #removeLost(connection: Connection): void {
    this.#live.delete(connection);
    if (this.#state.is !== "up") return;
    const why = reasonOf(connection.lost.reason);
    // A peer that has stopped answering on one connection has done so on all of them, and a peer that has exceeded a limit would do it again:
    // both take the whole link down.
    if (this.#live.size > 0 && !wentSilent(why) && !exceedsLimit(why)) {
      this.#log.warn({ err: why, connections: this.#live.size }, "lost one of several connections to the target");
      return this.#setState(this.#state);
    }
    this.fail(why);
  }

  #goDown(why: LinkError): void {
    this.#failures = this.#lastReason === why.reason ? this.#failures + 1 : 1;
    this.#lastReason = why.reason;
    const delay = retryDelay(why.reason, this.#failures) * this.#clock.jitter(0.8, 1.2);
    const timer = this.#clock.after(delay, () => void this.#connect().catch(() => undefined));
    this.#log.warn({ err: why, reason: why.reason, retryInMs: Math.round(delay) }, "link is down");
    this.#setState({ is: "down", since: this.#downSince, why, nextTryAt: this.#clock.now() + delay, timer });
  }

  async #openAnother(): Promise<Connection> {
    const most = connectionsFor([...this.#live]);
    if (this.#live.size >= most)
      throw new CodedError("failed_precondition", `there are ${most} connections to the target already`);
    const connection = await this.#open(this.#config, this.#closing.signal).catch((error: unknown) => {
      throw unreachable(this.#config, reasonOf(error));
    });
    // The link may have gone down meanwhile: this connection must not compete with a reconnect.
    if (this.#state.is !== "up") {
      connection.close();
      throw unreachable(this.#config, reasonOf(connection.lost.reason));
    }
    this.#addConnection(connection);
    this.#setState(this.#state);
    return connection;
  }
}

/** Returns the limit of connections to one target, which is higher when each allows few sessions. Pure. */
export function connectionsFor(live: readonly Pick<Connection, "limit">[]): number {
  const limit = Math.max(1, Math.min(...live.map((connection) => connection.limit)));
  return Math.min(mostConnections, Math.max(fewestConnections, Math.ceil(sessionsWanted / limit)));
}

function outside(
  state: State,
  { born, connections, config }: { born: number; connections: number; config: SshConfig },
): LinkState {
  switch (state.is) {
    case "idle": {
      const why = new LinkError("LinkDown", "unavailable", `${nameOf(config)} has not been connected to yet.`);
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

/** Error of all calls while the target is unreachable. Its code is unavailable for any reason: a refused login, for example, must not look
 *  like a missing permission on a file. */
function unreachable(config: SshConfig, why: LinkError): CodedError {
  return new CodedError("unavailable", `${nameOf(config)} is unreachable: ${why.message}`, { cause: why });
}

function closedError(): CodedError {
  return new CodedError("unavailable", "the link to the target is closed");
}
