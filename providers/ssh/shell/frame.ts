import { BoundedBuffer } from "../../../src/lib/bounded-buffer.ts";

/** Parses a shell's output up to the last line of an answer, which has the marker (unknown to commands) and some words. Nothing follows that
 *  line before the next question, so only the end of the output is searched. */
export class Frame {
  readonly #marker: Buffer;
  readonly #kept: BoundedBuffer;
  #tail = Buffer.alloc(0);

  /** @param limit bytes kept before the marker; the rest is dropped. */
  constructor(marker: string, limit: number) {
    this.#marker = Buffer.from(marker, "latin1");
    this.#kept = new BoundedBuffer(limit);
  }

  /** @returns the answer once complete: its bytes, and the words after the marker. */
  push(chunk: Buffer): { readonly data: Buffer; readonly words: readonly string[] } | undefined {
    const seen = Buffer.concat([this.#tail, chunk]);
    const at = seen.at(-1) === 0x0a ? seen.lastIndexOf(this.#marker) : -1;
    if (at >= 0) {
      this.#kept.add(seen.subarray(0, at));
      const words = seen
        .subarray(at + this.#marker.length)
        .toString("latin1")
        .trim()
        .split(" ");
      return { data: this.#kept.bytes(), words };
    }
    // The marker's line may arrive in pieces, so a tail that may contain its beginning is held back.
    const held = Math.min(seen.length, this.#marker.length + maxWordsBytes);
    this.#kept.add(seen.subarray(0, seen.length - held));
    this.#tail = Buffer.from(seen.subarray(seen.length - held));
    return undefined;
  }
}

/** Limit of the words after the marker. */
const maxWordsBytes = 80;
