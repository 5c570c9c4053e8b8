import { Writable } from "node:stream";

const firstBytes = 4096;

/** Keeps the first bytes written to it, and takes and drops the others. */
export class KeptOutput extends Writable {
  readonly #limit: number;
  #kept = Buffer.alloc(0);
  #length = 0;

  /** @param limit bytes to keep; memory follows what is kept, however small the pieces that it comes in. */
  constructor(limit: number) {
    super();
    this.#limit = limit;
  }

  bytes(): Buffer {
    return this.#kept.subarray(0, this.#length);
  }

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    const taken = piece.subarray(0, this.#limit - this.#length);
    const needed = this.#length + taken.length;
    if (needed > this.#kept.length) {
      const grown = Buffer.alloc(Math.min(this.#limit, Math.max(firstBytes, needed, 2 * this.#kept.length)));
      this.#kept.copy(grown, 0, 0, this.#length);
      this.#kept = grown;
    }
    taken.copy(this.#kept, this.#length);
    this.#length = needed;
    done();
  }
}
