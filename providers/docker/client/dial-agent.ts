import { Agent, type ClientRequest } from "node:http";
import { type Duplex, PassThrough } from "node:stream";
import { inspect } from "node:util";
import type { Clock, Timer } from "../../../src/lib/clock.ts";
import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import type { Host } from "../../../src/seams/host.ts";

export interface DialAgentOptions {
  readonly host: Pick<Host, "dial">;
  /** Absolute path of the daemon's socket on the target. */
  readonly socket: string;
  readonly clock: Clock;
  /** Keeps connections alive for later requests. */
  readonly keep: boolean;
}

/** Maximum number of idle connections: a sync of one pod makes about four requests at once, and several pods sync concurrently. */
const maxIdleConnections = 12;
/** Time after which an idle connection is closed, milliseconds: shorter than an idle node's health check interval, so that idle nodes hold
 *  no connection. */
const idleTimeoutMs = 4_000;

/** Opens connections from the target. With `keep`, a connection stays open for a moment after its response has been read, since opening one
 *  costs a round trip to the target. A connection that the daemon closes is dropped. */
export class DialAgent extends Agent {
  readonly #options: DialAgentOptions;
  /** Functions that put an idle connection back into use. */
  readonly #idle = new WeakMap<Duplex, () => void>();
  constructor(options: DialAgentOptions) {
    super({ keepAlive: options.keep, maxFreeSockets: maxIdleConnections });
    this.#options = options;
  }
  /** docker-modem inspects every request for its debug output, even when that is off. */
  [inspect.custom](): string {
    return DialAgent.name;
  }
  override createConnection(_options: unknown, done?: DialCallback): undefined {
    void this.#dial(done ?? (() => {}));
  }
  /** Node passes each request to its agent by calling this method, which the types do not declare. */
  addRequest(request: ClientRequest, ...rest: readonly unknown[]): void {
    limitInformationalResponses(request);
    (Agent.prototype as unknown as AgentInternals).addRequest.call(this, request, ...rest);
  }

  override keepSocketAlive(connection: Duplex): boolean {
    const drop = () => void connection.destroy();
    const timer: Timer = this.#options.clock.after(idleTimeoutMs, drop);
    const use = () => {
      timer.cancel();
      connection.off("end", drop).off("close", use);
    };
    connection.once("end", drop).once("close", use);
    this.#idle.set(connection, use);
    return true;
  }
  override reuseSocket(connection: Duplex, request: ClientRequest): void {
    this.#idle.get(connection)?.();
    super.reuseSocket(connection, request);
  }
  async #dial(done: DialCallback): Promise<void> {
    const { host, socket } = this.#options;
    try {
      const connection = await host.dial({ unix: socket });
      // Node's agents call ref() on connections that they reuse.
      done(null, "ref" in connection ? connection : Object.assign(connection, { ref: () => connection }));
    } catch (error) {
      done(error instanceof Error ? error : new Error(messageOf(error)), new PassThrough());
    }
  }
}

interface AgentInternals {
  addRequest(this: Agent, request: ClientRequest, ...rest: readonly unknown[]): void;
}

/** Maximum number of informational responses to one request: the Docker Engine sends none or one. */
const maxInformationalResponses = 16;

/** Fails a request that gets too many informational responses: each of them uses memory. */
function limitInformationalResponses(request: ClientRequest): void {
  let received = 0;
  request.on("information", () => {
    received += 1;
    if (received > maxInformationalResponses)
      request.destroy(new CodedError("resource_exhausted", "too many informational responses from the Docker Engine"));
  });
}

/** Callback of `createConnection`. Node ignores the connection if there is an error. */
type DialCallback = (error: Error | null, connection: Duplex) => void;
