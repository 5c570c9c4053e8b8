import { CodedError } from "../../lib/errors.ts";

/** Control frames of SPDY/3.1.
 *  @see https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/ */
export const frameType = { synStream: 1, synReply: 2, rstStream: 3, ping: 6, goAway: 7, headers: 8 } as const;

/** Reason of a stream reset. */
export const resetStatus = { protocolError: 1, invalidStream: 2, refusedStream: 3, cancel: 5 } as const;
export type ResetStatus = (typeof resetStatus)[keyof typeof resetStatus];

/** Reason for the end of a connection. */
export const goAwayStatus = { ok: 0, protocolError: 1 } as const;
export type GoAwayStatus = (typeof goAwayStatus)[keyof typeof goAwayStatus];

/** A complete control frame, or a piece of a data frame as received; `fin` is set on the frame's last piece. */
export type SpdyFrame =
  | { readonly kind: "control"; readonly type: number; readonly fin: boolean; readonly payload: Buffer }
  | { readonly kind: "data"; readonly id: number; readonly piece: Buffer; readonly fin: boolean };

const version = 3;
/** Length of every frame's header. */
const frameHeaderBytes = 8;
const controlBit = 0x8000_0000;
const finFlag = 1;
/** Maximum payload of a received control frame. */
const maxControlFrameBytes = 1 << 15;
/** Maximum length of a sent data frame, so that streams of one connection take turns. */
export const maxDataFrameBytes = 1 << 16;

/** Splits a byte stream into frames. Data frames are emitted in pieces as they arrive, whatever their length. */
export class FrameReader {
  readonly #head = Buffer.alloc(frameHeaderBytes);
  #headFilled = 0;
  #body: FrameBody | undefined;

  /** Yields the frames and pieces of data frames that a chunk completes. @throws CodedError invalid_argument for another version
   *  of SPDY, or a control frame that is too long. */
  *read(chunk: Buffer): Generator<SpdyFrame, void> {
    let rest = chunk;
    while (rest.length > 0) {
      if (!this.#body) {
        const taken = rest.copy(this.#head, this.#headFilled, 0, frameHeaderBytes - this.#headFilled);
        this.#headFilled += taken;
        rest = rest.subarray(taken);
        if (this.#headFilled < frameHeaderBytes) return;
        this.#headFilled = 0;
        this.#body = beginFrame(this.#head);
      }
      const body = this.#body;
      if (rest.length === 0 && body.left > 0) return;
      const part = rest.subarray(0, body.left);
      rest = rest.subarray(part.length);
      body.left -= part.length;
      if (body.left === 0) this.#body = undefined;
      const frame = continueFrame(body, part);
      if (frame) yield frame;
    }
  }
}

type FrameBody = { left: number; readonly fin: boolean } & (
  | { readonly kind: "data"; readonly id: number }
  | { readonly kind: "control"; readonly type: number; readonly payload: Buffer }
);

function beginFrame(head: Buffer): FrameBody {
  const first = head.readUInt32BE(0);
  const left = head.readUIntBE(5, 3);
  const fin = (head.readUInt8(4) & finFlag) !== 0;
  if ((first & controlBit) === 0) return { kind: "data", id: first, left, fin };
  if ((head.readUInt16BE(0) & 0x7fff) !== version) throw protocolError("unknown version of SPDY");
  if (left > maxControlFrameBytes) throw protocolError("control frame is too long");
  return { kind: "control", type: head.readUInt16BE(2), left, fin, payload: Buffer.allocUnsafe(left) };
}

/** Adds a part to a body; undefined while a control frame is incomplete. */
function continueFrame(body: FrameBody, part: Buffer): SpdyFrame | undefined {
  const whole = body.left === 0;
  if (body.kind === "data") return { kind: "data", id: body.id, piece: part, fin: body.fin && whole };
  const { type, fin, payload } = body;
  part.copy(payload, payload.length - body.left - part.length);
  return whole ? { kind: "control", type, fin, payload } : undefined;
}

/** Creates the error for a protocol violation by the peer. */
export function protocolError(text: string): CodedError {
  return new CodedError("invalid_argument", `SPDY: ${text}`);
}

/** Encodes the header of a data frame of this length. */
export function dataFrameHeader(id: number, bytes: number, fin: boolean): Buffer {
  const head = Buffer.allocUnsafe(frameHeaderBytes);
  head.writeUInt32BE(id, 0);
  head.writeUInt8(fin ? finFlag : 0, 4);
  head.writeUIntBE(bytes, 5, 3);
  return head;
}

/** Encodes the frame that opens a stream, with the highest priority and no associated stream. */
export function synStreamFrame(id: number, block: Buffer): Buffer {
  return controlFrame(frameType.synStream, Buffer.concat([uint32(id, 0), Buffer.alloc(2), block]));
}

/** Encodes the reply that accepts a stream. */
export function synReplyFrame(id: number, block: Buffer): Buffer {
  return controlFrame(frameType.synReply, Buffer.concat([uint32(id), block]));
}

export function rstStreamFrame(id: number, status: ResetStatus): Buffer {
  return controlFrame(frameType.rstStream, uint32(id, status));
}

export function pingFrame(id: number): Buffer {
  return controlFrame(frameType.ping, uint32(id));
}

export function goAwayFrame(lastId: number, status: GoAwayStatus): Buffer {
  return controlFrame(frameType.goAway, uint32(lastId, status));
}

function controlFrame(type: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(frameHeaderBytes);
  head.writeUInt32BE((controlBit | (version << 16) | type) >>> 0, 0);
  head.writeUInt32BE(payload.length, 4);
  return Buffer.concat([head, payload]);
}

function uint32(...values: readonly number[]): Buffer {
  const bytes = Buffer.alloc(4 * values.length);
  for (const [index, value] of values.entries()) bytes.writeUInt32BE(value, 4 * index);
  return bytes;
}
