import { Writable } from "node:stream";
import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";

/** Keeps the first bytes written and drops the rest. */
export class BoundedOutput extends Writable {
  readonly #kept: BoundedBuffer;

  /** @param limit bytes to keep. */
  constructor(limit: number) {
    super();
    this.#kept = new BoundedBuffer(limit);
  }

  bytes(): Buffer {
    return this.#kept.bytes();
  }

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#kept.add(piece);
    done();
  }
}
