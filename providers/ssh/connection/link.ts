import type { Clock, Timer } from "../../../src/lib/clock.ts";
import { CodedError, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Logger, ClockAndLog } from "../../../src/lib/log.ts";
import { untilAborted } from "../../../src/lib/runnables.ts";
import type { SshConfig } from "../config.ts";
import type { ReverseTunnel } from "../reverse/tunnel.ts";
import { type Connection, endpointName, openConnection, stoppedAnswering } from "./connection.ts";
import { isLimitError } from "./limit-exceeded.ts";
import { LinkError, type LinkState, retryDelay } from "./link-state.ts";
import { createSignal } from "../../../src/lib/signal.ts";

/** Link to a target: a set of SSH connections that is re-established when it breaks. All waiting callers share one reconnect. */
export type Link = Pick<SshLink, keyof SshLink>;

export interface LinkOptions extends ClockAndLog {
  readonly config: SshConfig;
  /** The reverse tunnel, if the first machine connects to graftlet. */
  readonly reverse?: ReverseTunnel;
  /** Opens a connection; uses ssh2 by default. */
  readonly open?: (config: SshConfig, signal: AbortSignal) => Promise<Connection>;
  /** Checks a new connection before the link counts as up. @throws LinkError when the target does not meet the requirements. */
  readonly check?: (connection: Connection, signal: AbortSignal) => Promise<void>;
  /** Checks a further connection, which is opened beside others, before it is used. @throws like `check`. */
  readonly checkFurther?: (connection: Connection, signal: AbortSignal) => Promise<void>;
}

/** Number of concurrent sessions that the connections should allow in total, if the target allows few per connection. */
const desiredSessions = 24;
const [minConnections, maxConnections] = [3, 12];
/** Uptime after which a link's retry delays are reset, ms. */
const stableUptimeMs = 2_000;

/** States of the link's state machine:
 *  - `idle`: no connection has been requested yet. The first call of `connection` starts connecting. Callers see it as `down`.
 *  - `connecting`: one attempt is in progress; all callers of `connection` wait for it. It logs in and runs the check, then the
 *    link is `up`, or on any error `down`.
 *  - `up`: there is at least one live connection, which calls get at once. `another` may add connections. The link stays up while
 *    connections are lost one by one; the loss of the last one, of one whose peer stopped answering or exceeded a limit, and
 *    `fail` take it `down`.
 *  - `down`: no connection, and no attempt in progress; calls fail at once with the reason. `timer` starts the next attempt after
 *    a delay that grows with consecutive failures for the same reason; a new reverse connection starts it at once, unless the
 *    reason needs human action.
 *  - `closed`: disposed. All connections are closed and calls fail; the link never leaves this state. */
type InternalState =
  | { readonly kind: "idle" }
  | {
      readonly kind: "down";
      readonly since: number;
      readonly why: LinkError;
      readonly nextTryAt: number;
      readonly timer: Timer;
    }
  | { readonly kind: "connecting"; readonly since: number; readonly ready: Promise<Connection> }
  | { readonly kind: "up"; readonly since: number }
  | { readonly kind: "closed" };

/** Creates a link, which connects on first use and stays connected. */
export function createLink(options: LinkOptions): Link {
  return new SshLink(options);
}

class SshLink {
  readonly #config: SshConfig;
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #open: NonNullable<LinkOptions["open"]>;
  readonly #check: LinkOptions["check"];
  readonly #checkFurther: LinkOptions["check"];
  readonly #changed = createSignal<[state: LinkState]>();
  readonly #live = new Set<Connection>();
  readonly #closing = new AbortController();
  readonly #createdAt: number;
  #state: InternalState = { kind: "idle" };
  #downSince: number;
  /** Consecutive failures for the last reason. */
  #failures = 0;
  #lastReason: LinkError["reason"] | undefined;
  #exchanges = 0;
  #opening: Promise<Connection> | undefined;

  constructor({ config, clock, log, reverse, open, check, checkFurther }: LinkOptions) {
    this.#config = config;
    this.#clock = clock;
    this.#log = log;
    this.#open = open ?? ((to, signal) => openConnection(to, { clock, ...(reverse && { reverse }) }, signal));
    reverse?.onConnected(() => this.#retryNow());
    this.#check = check;
    this.#checkFurther = checkFurther;
    this.#createdAt = clock.now();
    this.#downSince = this.#createdAt;
  }

  state(): LinkState {
    return publicState(this.#state, { born: this.#createdAt, connections: this.#live.size, config: this.#config });
  }

  /** Registers a listener for state changes. @returns a function that removes it. */
  onChange(listener: (state: LinkState) => void): () => void {
    return this.#changed.subscribe(listener);
  }

  /** Number of exchanges with the target so far. A request with its answer, a batch of requests, a runtime call and a login count as one
   *  each; concurrent exchanges count separately. */
  roundTrips(): number {
    return this.#exchanges;
  }

  countExchange(): void {
    this.#exchanges += 1;
    this.#log.trace({ exchanges: this.#exchanges }, "exchange with the target");
  }

  /** Returns all live connections, oldest first. */
  connections(): readonly Connection[] {
    return [...this.#live];
  }

  /** Returns a live connection; waits for one that is being established.
   *  @throws unavailable at once while the link is down, with the reason as cause. */
  async connection(signal?: AbortSignal): Promise<Connection> {
    throwIfAborted(signal);
    const state = this.#state;
    if (state.kind === "closed") throw closedError();
    if (state.kind === "down") throw unreachableError(this.#config, state.why);
    const [first] = this.#live;
    return state.kind === "up" && first ? first : untilAborted(this.#connect(), signal);
  }

  /** Opens one more connection; concurrent callers share it.
   *  @throws unavailable when it cannot be opened, failed_precondition at the limit. */
  async openAnother(signal?: AbortSignal): Promise<Connection> {
    throwIfAborted(signal);
    this.#opening ??= this.#openAnother().finally(() => {
      this.#opening = undefined;
    });
    return untilAborted(this.#opening, signal);
  }

  /** Takes the link down with this reason: closes its connections, then reconnects after a delay. */
  fail(why: LinkError): void {
    if (this.#state.kind !== "up") return;
    this.#downSince = this.#clock.now();
    if (this.#downSince - this.#state.since >= stableUptimeMs) this.#failures = 0;
    const live = [...this.#live];
    this.#goDown(why);
    for (const connection of live) connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const state = this.#state;
    if (state.kind === "closed") return;
    if (state.kind === "down") state.timer.cancel();
    this.#setState({ kind: "closed" });
    this.#closing.abort();
    for (const connection of this.#live) connection.close();
    await Promise.allSettled([state.kind === "connecting" ? state.ready : undefined, this.#opening]);
  }

  #setState(next: InternalState): void {
    this.#state = next;
    this.#changed.send(this.state());
  }

  #connect(): Promise<Connection> {
    if (this.#state.kind === "connecting") return this.#state.ready;
    const ready = this.#attempt();
    this.#setState({ kind: "connecting", since: this.#clock.now(), ready });
    return ready;
  }

  /** Starts the next attempt at once when the machine has opened a reverse connection, unless the reason needs human action. After a
   *  host-key mismatch it is worth trying: that key may have been presented over another reverse connection. */
  #retryNow(): void {
    const state = this.#state;
    if (state.kind !== "down" || !["ReverseTunnelDown", "LinkDown", "HostKeyMismatch"].includes(state.why.reason))
      return;
    state.timer.cancel();
    void this.#connect().catch(() => undefined);
  }

  async #attempt(): Promise<Connection> {
    // The caller has to set the state to "connecting" before anything here can fail.
    await Promise.resolve();
    try {
      const connection = this.#addConnection(await this.#openChecked(this.#check));
      this.#log.info({ target: endpointName(this.#config) }, "SSH link is up");
      this.#setState({ kind: "up", since: this.#clock.now() });
      return connection;
    } catch (error) {
      if (this.#closing.signal.aborted) throw closedError();
      const why = asLinkError(error);
      this.#goDown(why);
      throw unreachableError(this.#config, why);
    }
  }

  async #openChecked(check: LinkOptions["check"]): Promise<Connection> {
    const connection = await this.#open(this.#config, this.#closing.signal);
    this.#exchanges += 1;
    try {
      await check?.(connection, AbortSignal.any([this.#closing.signal, connection.lost]));
      return connection;
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
    if (this.#state.kind !== "up") return;
    const why = asLinkError(connection.lost.reason);
    // If a peer has stopped answering on one connection, the others are dead, too; a peer that has exceeded a limit would exceed
    // it again. In both cases the whole link goes down.
    if (this.#live.size > 0 && !stoppedAnswering(why) && !isLimitError(why)) {
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
    this.#log.warn({ err: why, reason: why.reason, retryInMs: Math.round(delay) }, "SSH link is down");
    this.#setState({ kind: "down", since: this.#downSince, why, nextTryAt: this.#clock.now() + delay, timer });
  }

  async #openAnother(): Promise<Connection> {
    const most = connectionLimit([...this.#live]);
    if (this.#live.size >= most)
      throw new CodedError("failed_precondition", `there are already ${most} connections to the target`);
    const connection = await this.#openChecked(this.#checkFurther).catch((error: unknown) => {
      throw unreachableError(this.#config, asLinkError(error));
    });
    // The link may have gone down meanwhile: this connection must not compete with a reconnect.
    if (this.#state.kind !== "up") {
      connection.close();
      throw unreachableError(this.#config, asLinkError(connection.lost.reason));
    }
    this.#addConnection(connection);
    this.#setState(this.#state);
    return connection;
  }
}

/** Returns the limit of connections to one target, which is higher when each allows few sessions. Pure. */
export function connectionLimit(live: readonly Pick<Connection, "sessionLimit">[]): number {
  const limit = Math.max(1, Math.min(...live.map((connection) => connection.sessionLimit)));
  return Math.min(maxConnections, Math.max(minConnections, Math.ceil(desiredSessions / limit)));
}

function publicState(
  state: InternalState,
  { born, connections, config }: { born: number; connections: number; config: SshConfig },
): LinkState {
  switch (state.kind) {
    case "idle": {
      const why = new LinkError(
        "LinkDown",
        "unavailable",
        `graftlet has not connected to ${endpointName(config)} yet.`,
      );
      return { kind: "down", since: born, why, nextTryAt: born };
    }
    case "down":
      return { kind: "down", since: state.since, why: state.why, nextTryAt: state.nextTryAt };
    case "connecting":
      return { kind: "connecting", since: state.since };
    case "up":
      return { kind: "up", since: state.since, connections };
    case "closed":
      return state;
  }
}

function asLinkError(error: unknown): LinkError {
  if (error instanceof LinkError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new LinkError("LinkDown", "unavailable", message, { cause: error });
}

/** Error of all calls while the target is unreachable. Its code is unavailable for any reason: a refused login, for example, must not look
 *  like a missing permission on a file. */
function unreachableError(config: SshConfig, why: LinkError): CodedError {
  return new CodedError("unavailable", `${endpointName(config)} is unreachable: ${why.message}`, { cause: why });
}

function closedError(): CodedError {
  return new CodedError("unavailable", "the link to the target is closed");
}
