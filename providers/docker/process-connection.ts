import { Duplex } from "node:stream";
import type { HostProcess } from "../../src/seams/host.ts";

/** A process of the target as a connection: its standard input and output. Each direction may end by itself; destroying it
 *  kills the process. What is written after the process has closed its input is lost, as with a connection whose peer no
 *  longer reads, and does not keep its last words from being read. */
export class ProcessConnection extends Duplex {
  readonly #process: HostProcess;

  constructor(process: HostProcess) {
    super({ allowHalfOpen: true });
    this.#process = process;
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
    this.#process.kill("SIGKILL");
    this.#process.stdin.destroy();
    this.#process.stdout.destroy();
    done(error);
  }
}
