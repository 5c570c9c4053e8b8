import { Duplex } from "node:stream";
import type { Clock } from "../../../src/lib/clock.ts";
import type { HostProcess } from "../../../src/seams/host.ts";

/** How long a process may go on with what it was given when both directions have ended. */
const lingerMs = 60_000;

/** A process of the target as a connection: its standard input and output. Each direction may end by itself; destroying it
 *  before both have kills the process. What is written after the process has closed its input is lost, as with a connection whose peer no
 *  longer reads, and does not keep its last words from being read. */
export class ProcessConnection extends Duplex {
  readonly #process: HostProcess;
  readonly #clock: Clock;

  /** Resolves when the process has ended: how is not told when the link to its machine breaks. */
  readonly ended: Promise<unknown>;

  constructor(process: HostProcess, clock: Clock) {
    super({ allowHalfOpen: true });
    this.#process = process;
    this.#clock = clock;
    this.ended = process.exited.catch(() => undefined);
    const { stdin, stdout } = process;
    stdin.on("error", () => undefined);
    stdout.on("data", (block: Buffer) => {
      if (!this.push(block)) stdout.pause();
    });
    stdout.once("end", () => this.push(null));
    stdout.once("error", (error) => this.destroy(error));
    stdout.pause();
  }

  override _read(): void {
    this.#process.stdout.resume();
  }

  override _write(block: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const { stdin } = this.#process;
    if (!stdin.writable) return done();
    stdin.write(block, () => done());
  }

  override _final(done: () => void): void {
    this.#process.stdin.end(() => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const { stdin, stdout } = this.#process;
    stdout.destroy();
    if (this.readableEnded && this.writableFinished) this.#killLater();
    else {
      this.#process.kill("SIGKILL");
      stdin.destroy();
    }
    done(error);
  }

  /** It may still be handing on what it has read. */
  #killLater(): void {
    const timer = this.#clock.after(lingerMs, () => this.#process.kill("SIGKILL"));
    const cancel = () => timer.cancel();
    void this.ended.then(cancel);
  }
}
