import { Agent, type ClientRequest } from "node:http";
import { type Duplex, PassThrough } from "node:stream";
import { inspect } from "node:util";
import type { Clock, Timer } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import type { Host } from "../../../src/seams/host.ts";

export interface DialAgentOptions {
  readonly host: Pick<Host, "dial">;
  /** Absolute path of the daemon's socket on the target. */
  readonly socket: string;
  readonly clock: Clock;
  /** Whether connections are kept for the next question. */
  readonly keep: boolean;
}

/** A look at a pod asks some four questions at once, and looks at several pods go on side by side. */
const mostIdle = 12;
/** Sooner than a node at rest asks how the daemon is, milliseconds: then none is held. */
const idleMs = 4_000;

/** Opens connections from the target. Where they are kept, one whose answer has been read is kept for a moment for the next
 *  question: where the target is far away opening one costs a round trip. One that the daemon closes meanwhile, as it does when
 *  it ends, is dropped. */
export class DialAgent extends Agent {
  readonly #options: DialAgentOptions;
  /** How each idle connection is taken into use. */
  readonly #idle = new WeakMap<Duplex, () => void>();
  constructor(options: DialAgentOptions) {
    super({ keepAlive: options.keep, maxFreeSockets: mostIdle });
    this.#options = options;
  }
  /** docker-modem inspects every request for its debug output, whether it is wanted or not. */
  [inspect.custom](): string {
    return DialAgent.name;
  }
  override createConnection(_options: unknown, done?: Dialled): undefined {
    void this.#dial(done ?? (() => {}));
  }
  override keepSocketAlive(connection: Duplex): boolean {
    const drop = () => void connection.destroy();
    const timer: Timer = this.#options.clock.after(idleMs, drop);
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
  async #dial(done: Dialled): Promise<void> {
    const { host, socket } = this.#options;
    try {
      const connection = await host.dial({ unix: socket });
      // Node's agents hold the process with what they use again.
      done(null, "ref" in connection ? connection : Object.assign(connection, { ref: () => connection }));
    } catch (error) {
      done(error instanceof Error ? error : new Error(messageOf(error)), new PassThrough());
    }
  }
}

/** Node's agents look at the connection only where there is no error. */
type Dialled = (error: Error | null, connection: Duplex) => void;
