import { frameHeaderBytes, protocolError } from "./frames.ts";

/** A complete control frame including its header; or bytes of a data frame as received, including its header, with `fin` on the last ones
 *  that the sender has for that stream. */
export type FramePart =
  | { readonly kind: "control"; readonly type: number; readonly fin: boolean; readonly bytes: Buffer }
  | { readonly kind: "data"; readonly id: number; readonly fin: boolean; readonly bytes: Buffer };

const finFlag = 1;
const controlBit = 0x80;
/** Maximum payload of a control frame that is buffered. */
const maxControlFrameBytes = 1 << 16;

/** Splits SPDY's bytes at frame boundaries for forwarding. Data frames stay slices of the input, not copied except for a header that
 *  spans two chunks. At most one incomplete control frame is buffered. */
export class FrameSplitter {
  readonly #head = Buffer.alloc(frameHeaderBytes);
  #filled = 0;
  /** Missing payload bytes of the current frame. */
  #left = 0;
  /** The current control frame, at its full length. */
  #control: Buffer | undefined;
  /** Stream and flags of the current data frame. */
  #id = 0;
  #fin = false;

  /** True if part of a data frame was emitted and more is to come. */
  get inData(): boolean {
    return this.#left > 0 && !this.#control;
  }

  /** The pieces that a chunk completes. @throws CodedError invalid_argument for a control frame that is too long. */
  *split(chunk: Buffer): Generator<FramePart, void> {
    let rest = chunk;
    while (rest.length > 0) {
      if (this.#left === 0 && this.#filled === 0 && isDataFrameHeader(rest)) {
        const length = frameHeaderBytes + this.#beginData(rest);
        const bytes = rest.subarray(0, length);
        rest = rest.subarray(bytes.length);
        this.#left = length - bytes.length;
        yield this.#dataOf(bytes);
      } else if (this.#left === 0) {
        const taken = rest.copy(this.#head, this.#filled, 0, frameHeaderBytes - this.#filled);
        this.#filled += taken;
        rest = rest.subarray(taken);
        if (this.#filled < frameHeaderBytes) return;
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

  #begin(): FramePart | undefined {
    if (isDataFrameHeader(this.#head)) {
      this.#left = this.#beginData(this.#head);
      return this.#dataOf(Buffer.from(this.#head));
    }
    const length = this.#head.readUIntBE(5, 3);
    if (length > maxControlFrameBytes) throw protocolError("control frame is too long");
    const frame = Buffer.allocUnsafe(frameHeaderBytes + length);
    this.#head.copy(frame);
    this.#left = length;
    this.#control = frame;
    return length === 0 ? this.#whole(frame) : undefined;
  }

  /** @returns the number of bytes after the frame's header. */
  #beginData(head: Buffer): number {
    this.#id = head.readUInt32BE(0);
    this.#fin = (head.readUInt8(4) & finFlag) !== 0;
    return head.readUIntBE(5, 3);
  }

  #dataOf(bytes: Buffer): FramePart {
    return { kind: "data", id: this.#id, fin: this.#fin && this.#left === 0, bytes };
  }

  #take(part: Buffer): FramePart | undefined {
    const frame = this.#control;
    if (frame) part.copy(frame, frame.length - this.#left);
    this.#left -= part.length;
    if (!frame) return this.#dataOf(part);
    return this.#left === 0 ? this.#whole(frame) : undefined;
  }

  #whole(bytes: Buffer): FramePart {
    this.#control = undefined;
    return { kind: "control", type: bytes.readUInt16BE(2), fin: (bytes.readUInt8(4) & finFlag) !== 0, bytes };
  }
}

/** True if the whole header of a data frame is present. */
function isDataFrameHeader(bytes: Buffer): boolean {
  return bytes.length >= frameHeaderBytes && (bytes.readUInt8(0) & controlBit) === 0;
}

/** Concatenates buffers. Adjacent slices of the same memory are not copied. */
export function concatBuffers(parts: readonly Buffer[]): Buffer {
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
