const initialBytes = 4096;

/** A buffer that keeps the first bytes of a stream of chunks. Memory use follows the kept bytes, however small the chunks are;
 *  the rest of a chunk is not retained. */
export class BoundedBuffer {
  readonly #limit: number;
  #kept = Buffer.alloc(0);
  #length = 0;

  /** @param limit bytes to keep. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  get length(): number {
    return this.#length;
  }

  /** The bytes kept so far; valid until more are added. */
  bytes(): Buffer {
    return this.#kept.subarray(0, this.#length);
  }

  /** @returns false if the chunk was truncated. */
  add(piece: Uint8Array): boolean {
    const taken = piece.subarray(0, this.#limit - this.#length);
    const needed = this.#length + taken.length;
    if (needed > this.#kept.length) {
      const grown = Buffer.alloc(Math.min(this.#limit, Math.max(initialBytes, needed, 2 * this.#kept.length)));
      this.#kept.copy(grown, 0, 0, this.#length);
      this.#kept = grown;
    }
    this.#kept.set(taken, this.#length);
    this.#length = needed;
    return taken.length === piece.length;
  }

  /** Returns the kept bytes and starts over. The returned buffer uses at most twice its length of memory. */
  take(): Buffer {
    const kept = this.bytes();
    this.#length = 0;
    const isFull = 2 * kept.length > this.#kept.length;
    const taken = isFull ? kept : Buffer.alloc(kept.length);
    if (!isFull) kept.copy(taken);
    if (isFull || this.#kept.length > initialBytes) this.#kept = Buffer.alloc(0);
    return taken;
  }
}
