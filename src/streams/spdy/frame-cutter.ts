import { protocolError } from "./frames.ts";

/** A whole control frame, head included; or bytes of a data frame as they come, head included. */
export type Cut =
  | { readonly is: "control"; readonly type: number; readonly fin: boolean; readonly bytes: Buffer }
  | { readonly is: "data"; readonly bytes: Buffer };

const headBytes = 8;
const finFlag = 1;
const controlBit = 0x80;
/** The longest payload of a control frame that is kept until it is whole. */
const longestControl = 1 << 16;

/** Cuts SPDY's bytes at its frames, so that they can be passed on: data frames as they lie in what is cut, without a copy but for a
 *  head that comes in two chunks. What it has not handed on is less than a control frame. */
export class FrameCutter {
  readonly #head = Buffer.alloc(headBytes);
  #filled = 0;
  /** Payload bytes of the frame under way that are still to come. */
  #left = 0;
  /** Of a control frame under way. */
  #parts: Buffer[] | undefined;

  /** Bytes of a data frame were handed on, and more of it are to come. */
  get inData(): boolean {
    return this.#left > 0 && !this.#parts;
  }

  /** What a chunk completes. @throws CodedError invalid_argument for a control frame that is too long. */
  *cut(chunk: Buffer): Generator<Cut, void> {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#left === 0 && this.#filled === 0 && isDataHead(rest)) {
        const length = headBytes + rest.readUIntBE(5, 3);
        const bytes = rest.subarray(0, length);
        rest = rest.subarray(bytes.length);
        this.#left = length - bytes.length;
        yield { is: "data", bytes };
      } else if (this.#left === 0) {
        const taken = rest.copy(this.#head, this.#filled, 0, headBytes - this.#filled);
        this.#filled += taken;
        rest = rest.subarray(taken);
        if (this.#filled < headBytes) return;
        this.#filled = 0;
        const whole = this.#begin();
        if (whole) yield whole;
      } else {
        const part = rest.subarray(0, this.#left);
        rest = rest.subarray(part.length);
        const more = this.#take(part);
        if (more) yield more;
      }
    }
  }

  #begin(): Cut | undefined {
    const head = Buffer.from(this.#head);
    this.#left = head.readUIntBE(5, 3);
    if ((head.readUInt8(0) & controlBit) === 0) return { is: "data", bytes: head };
    if (this.#left > longestControl) throw protocolError("control frame is too long");
    this.#parts = [head];
    return this.#left === 0 ? this.#whole(this.#parts) : undefined;
  }

  #take(part: Buffer): Cut | undefined {
    this.#left -= part.length;
    if (!this.#parts) return { is: "data", bytes: part };
    this.#parts.push(Buffer.from(part));
    return this.#left === 0 ? this.#whole(this.#parts) : undefined;
  }

  #whole(parts: readonly Buffer[]): Cut {
    this.#parts = undefined;
    const bytes = Buffer.concat(parts);
    return { is: "control", type: bytes.readUInt16BE(2), fin: (bytes.readUInt8(4) & finFlag) !== 0, bytes };
  }
}

/** The whole head of a data frame is there. */
function isDataHead(bytes: Buffer): boolean {
  return bytes.length >= headBytes && (bytes.readUInt8(0) & controlBit) === 0;
}

/** Buffers one after the other. What lies side by side in memory, as what was only cut does, is not copied. */
export function together(parts: readonly Buffer[]): Buffer {
  const runs: Buffer[] = [];
  for (const part of parts) {
    const last = runs.at(-1);
    if (last?.buffer === part.buffer && last.byteOffset + last.length === part.byteOffset)
      runs[runs.length - 1] = Buffer.from(last.buffer, last.byteOffset, last.length + part.length);
    else runs.push(part);
  }
  const [only] = runs;
  return only && runs.length === 1 ? only : Buffer.concat(runs);
}
