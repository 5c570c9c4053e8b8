import { type Cut, FrameCutter, together } from "./frame-cutter.ts";
import { beginsSpdy, blockAt, dataHead, frameType, headBytes } from "./frames.ts";
import { createHeaderReader } from "./header-block.ts";

const finFlag = 1;
const streamMask = 0x7fff_ffff;
/** Maximum size of a buffered frame: more than servers send in one. */
const mostKept = 1 << 16;
/** Ensures that a SPDY client receives its command's result. Protocols other than SPDY pass unchanged, without a result. */
export interface ToldEnd {
  /** Observes the client's bytes. @throws CodedError invalid_argument for a protocol violation. */
  fromClient(chunk: Buffer): void;
  /** Server bytes to forward now, without a copy: data frames are forwarded whole, because nothing can be inserted within one. @throws
   *  CodedError invalid_argument for a protocol violation. */
  fromServer(chunk: Buffer): readonly Buffer[];
  /** Last bytes for the client once the server has ended: the received part of a last frame, and the status. No status is added if the
   *  error stream has carried data, it has ended, or the client already has a part of a frame, as with a very long one. */
  atEnd(): readonly Buffer[];
}

/** @param status result for the client if the server sends none. */
export function createToldEnd(status: Buffer): ToldEnd {
  const errors = createErrorStreamFinder();
  const frames = createWholeFrames(errors.id);
  return {
    fromClient: errors.look,
    // A server that sends first does not wait for streams.
    fromServer: (chunk) => (errors.isSpdy() ? frames.take(chunk) : [chunk]),
    atEnd() {
      const id = errors.id();
      const rest = frames.rest();
      if (rest === "lost" || id === undefined || frames.heard()) return rest === "lost" ? [] : rest;
      return [...rest, dataHead(id, status.length, true), status];
    },
  };
}

/** Finds the error stream that the client opens. */
function createErrorStreamFinder() {
  const cutter = new FrameCutter();
  const reader = createHeaderReader();
  let found: number | undefined;
  let speaks: "spdy" | "other" | undefined;
  return {
    id: () => found,
    isSpdy: () => speaks === "spdy",
    look(chunk: Buffer): void {
      speaks ??= beginsSpdy(chunk) ? "spdy" : "other";
      if (speaks === "other" || found !== undefined) return;
      for (const cut of cutter.cut(chunk)) found ??= errorStreamIn(cut, reader);
    },
  };
}

function errorStreamIn(cut: Cut, reader: ReturnType<typeof createHeaderReader>): number | undefined {
  if (cut.is !== "control") return undefined;
  const at = blockAt[cut.type];
  if (at === undefined) return undefined;
  // Header blocks of one direction share their compression state: each must be read.
  const headers = reader.read(cut.bytes.subarray(at));
  return cut.type === frameType.synStream && headers.get("streamtype") === "error" ? idIn(cut.bytes) : undefined;
}

/** Buffers data frames until they are complete. @param errorStream the observed stream. */
function createWholeFrames(errorStream: () => number | undefined) {
  const cutter = new FrameCutter();
  let frame = { id: 0, fin: false, left: 0 };
  let kept: Buffer[] = [];
  let passing = false;
  let heard = false;

  const data = (bytes: Buffer): readonly Buffer[] => {
    const begins = frame.left === 0;
    if (begins) frame = headIn(bytes);
    const length = bytes.length - (begins ? headBytes : 0);
    frame.left -= length;
    const whole = frame.left === 0;
    if (frame.id === errorStream() && (length > 0 || (frame.fin && whole))) heard = true;
    kept.push(bytes);
    passing ||= !whole && kept.reduce((sum, part) => sum + part.length, 0) > mostKept;
    if (!whole && !passing) return [];
    passing &&= !whole;
    const out = kept;
    kept = [];
    return out;
  };
  const control = (cut: Cut & { is: "control" }): readonly Buffer[] => {
    const ends = cut.type === frameType.rstStream || (cut.fin && cut.type === frameType.synReply);
    if (ends && idIn(cut.bytes) === errorStream()) heard = true;
    return [cut.bytes];
  };
  return {
    /** True if the error stream has carried data or has ended. */
    heard: () => heard,
    take(chunk: Buffer): readonly Buffer[] {
      const before = kept.length;
      const out: Buffer[] = [];
      for (const cut of cutter.cut(chunk)) out.push(...(cut.is === "data" ? data(cut.bytes) : control(cut)));
      return out.length > before ? [...out.slice(0, before), together(out.slice(before))] : out;
    },
    /** The received part of an incomplete frame, as a complete one; "lost" if the client already has a part of it. */
    rest(): readonly Buffer[] | "lost" {
      if (passing) return "lost";
      const [payload] = [Buffer.concat(kept).subarray(headBytes)];
      return payload.length > 0 ? [dataHead(frame.id, payload.length, false), payload] : [];
    },
  };
}

function idIn(control: Buffer): number | undefined {
  return control.length >= headBytes + 4 ? control.readUInt32BE(headBytes) & streamMask : undefined;
}

function headIn(bytes: Buffer): { id: number; fin: boolean; left: number } {
  const fin = (bytes.readUInt8(4) & finFlag) !== 0;
  return { id: bytes.readUInt32BE(0), fin, left: bytes.readUIntBE(5, 3) };
}
