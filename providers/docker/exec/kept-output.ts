import { Writable } from "node:stream";
import { KeptBytes } from "../../../src/lib/kept-bytes.ts";

/** Keeps the first bytes written and drops the rest. */
export class KeptOutput extends Writable {
  readonly #kept: KeptBytes;

  /** @param limit bytes to keep. */
  constructor(limit: number) {
    super();
    this.#kept = new KeptBytes(limit);
  }

  bytes(): Buffer {
    return this.#kept.bytes();
  }

  override _write(piece: Buffer, _encoding: BufferEncoding, done: () => void): void {
    this.#kept.add(piece);
    done();
  }
}
