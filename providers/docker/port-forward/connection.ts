import { Duplex, type Writable } from "node:stream";
import type { Clock } from "../../../src/lib/clock.ts";
import type { HostProcess } from "../../../src/seams/host.ts";

/** Time that a process may still pass on received data after both directions have ended. */
const lingerTimeoutMs = 60_000;

/** A process on the target as a duplex connection over its standard input and output. Each direction ends independently;
 *  destroying the connection earlier kills the process. Writes after the process has closed its input are lost, as with any
 *  connection, and do not prevent reading its last output. */
export class ProcessConnection extends Duplex {
  readonly #process: HostProcess;
  readonly #stdin: Writable;
  readonly #clock: Clock;
  #received = 0;
  /** Bytes that the process writes in all, once it has told. */
  #total = Infinity;
  #hasEnded = false;

  /** Resolves when the process has ended, or the link to its machine is broken. */
  readonly ended: Promise<unknown>;

  /** @param total bytes that the process has written in all, once it tells: its standard output may be kept open by another process,
   *  such as sudo, which ends with it only. */
  constructor(process: HostProcess, clock: Clock, total?: Promise<number>) {
    super({ allowHalfOpen: true });
    this.#process = process;
    this.#stdin = process.stdin;
    this.#clock = clock;
    this.ended = process.exited.catch(() => undefined);
    const { stdout } = process;
    this.#stdin.on("error", () => undefined);
    stdout.on("data", (block: Buffer) => {
      if (this.#hasEnded) return;
      this.#received += block.length;
      if (!this.push(block)) stdout.pause();
      this.#endOnceWhole();
    });
    stdout.once("end", () => this.#end());
    void total?.then((bytes) => {
      this.#total = bytes;
      this.#endOnceWhole();
    });
    stdout.once("error", (error) => this.destroy(error));
    stdout.pause();
  }

  #endOnceWhole(): void {
    if (this.#received >= this.#total) this.#end();
  }

  #end(): void {
    if (!this.#hasEnded) this.push(null);
    this.#hasEnded = true;
  }

  override _read(): void {
    this.#process.stdout.resume();
  }

  override _write(block: Buffer, _encoding: BufferEncoding, done: () => void): void {
    if (!this.#stdin.writable) return done();
    this.#stdin.write(block, () => done());
  }

  override _final(done: () => void): void {
    this.#stdin.end(() => done());
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const { stdout } = this.#process;
    stdout.destroy();
    if (this.readableEnded && this.writableFinished) this.#killLater();
    else {
      this.#process.kill("SIGKILL");
      this.#stdin.destroy();
    }
    done(error);
  }

  /** Kills the process after a delay, since it may still be passing on data. */
  #killLater(): void {
    const timer = this.#clock.after(lingerTimeoutMs, () => this.#process.kill("SIGKILL"));
    const cancel = () => timer.cancel();
    void this.ended.then(cancel);
  }
}
