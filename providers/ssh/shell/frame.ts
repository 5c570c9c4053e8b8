import { KeptBytes } from "../../../src/lib/kept-bytes.ts";

/** Reads what a shell says until the line that ends an answer: the marker, which no command can know, and what follows it.
 *  Nothing comes after that line until the shell is asked again, so it is looked for at the end only. */
export class Frame {
  readonly #marker: Buffer;
  readonly #kept: KeptBytes;
  #tail = Buffer.alloc(0);

  /** @param limit bytes kept before the marker; more than that are dropped. */
  constructor(marker: string, limit: number) {
    this.#marker = Buffer.from(marker, "latin1");
    this.#kept = new KeptBytes(limit);
  }

  /** @returns the answer once it is complete: its bytes, and the words after the marker. */
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
    // The marker's line may arrive in pieces: what could be part of it is held back.
    const held = Math.min(seen.length, this.#marker.length + longestWords);
    this.#kept.add(seen.subarray(0, seen.length - held));
    this.#tail = Buffer.from(seen.subarray(seen.length - held));
    return undefined;
  }
}

/** What an answer's last line says after the marker is at most as long as this. */
const longestWords = 80;
