import { type FramePart, FrameSplitter, concatBuffers } from "./frame-splitter.ts";
import { isSpdy, headerBlockOffset, dataFrameHeader, frameType, frameHeaderBytes } from "./frames.ts";
import { createHeaderReader } from "./header-block.ts";

const finFlag = 1;
const streamMask = 0x7fff_ffff;
/** Maximum size of a buffered frame: more than servers send in one. */
const maxBufferedBytes = 1 << 16;
/** Ensures that a SPDY client receives its command's result. Protocols other than SPDY pass unchanged, without a result. */
export interface StatusGuard {
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
export function createStatusGuard(status: Buffer): StatusGuard {
  const errors = createErrorStreamFinder();
  const frames = createWholeFrames(errors.id);
  return {
    fromClient: errors.inspect,
    // A server that sends first does not wait for streams.
    fromServer: (chunk) => (errors.isSpdy() ? frames.forward(chunk) : [chunk]),
    atEnd() {
      const id = errors.id();
      const rest = frames.rest();
      if (rest === "lost" || id === undefined || frames.hasStatus()) return rest === "lost" ? [] : rest;
      return [...rest, dataFrameHeader(id, status.length, true), status];
    },
  };
}

/** Finds the error stream that the client opens. */
function createErrorStreamFinder() {
  const splitter = new FrameSplitter();
  const reader = createHeaderReader();
  let found: number | undefined;
  let protocol: "spdy" | "other" | undefined;
  return {
    id: () => found,
    isSpdy: () => protocol === "spdy",
    inspect(chunk: Buffer): void {
      protocol ??= isSpdy(chunk) ? "spdy" : "other";
      if (protocol === "other" || found !== undefined) return;
      for (const cut of splitter.split(chunk)) found ??= errorStreamIn(cut, reader);
    },
  };
}

function errorStreamIn(cut: FramePart, reader: ReturnType<typeof createHeaderReader>): number | undefined {
  if (cut.kind !== "control") return undefined;
  const at = headerBlockOffset[cut.type];
  if (at === undefined) return undefined;
  // Header blocks of one direction share their compression state: each must be read.
  const headers = reader.read(cut.bytes.subarray(at));
  return cut.type === frameType.synStream && headers.get("streamtype") === "error" ? streamIdOf(cut.bytes) : undefined;
}

/** Buffers data frames until they are complete. @param errorStream the observed stream. */
function createWholeFrames(errorStream: () => number | undefined) {
  const splitter = new FrameSplitter();
  let frame = { id: 0, fin: false, left: 0 };
  let buffered: Buffer[] = [];
  let passing = false;
  let sawStatus = false;

  const data = (bytes: Buffer): readonly Buffer[] => {
    const begins = frame.left === 0;
    if (begins) frame = parseDataHeader(bytes);
    const length = bytes.length - (begins ? frameHeaderBytes : 0);
    frame.left -= length;
    const whole = frame.left === 0;
    if (frame.id === errorStream() && (length > 0 || (frame.fin && whole))) sawStatus = true;
    buffered.push(bytes);
    passing ||= !whole && buffered.reduce((sum, part) => sum + part.length, 0) > maxBufferedBytes;
    if (!whole && !passing) return [];
    passing &&= !whole;
    const out = buffered;
    buffered = [];
    return out;
  };
  const control = (cut: FramePart & { kind: "control" }): readonly Buffer[] => {
    const ends = cut.type === frameType.rstStream || (cut.fin && cut.type === frameType.synReply);
    if (ends && streamIdOf(cut.bytes) === errorStream()) sawStatus = true;
    return [cut.bytes];
  };
  return {
    /** True if the error stream has carried data or has ended. */
    hasStatus: () => sawStatus,
    forward(chunk: Buffer): readonly Buffer[] {
      const before = buffered.length;
      const out: Buffer[] = [];
      for (const cut of splitter.split(chunk)) out.push(...(cut.kind === "data" ? data(cut.bytes) : control(cut)));
      return out.length > before ? [...out.slice(0, before), concatBuffers(out.slice(before))] : out;
    },
    /** The received part of an incomplete frame, as a complete one; "lost" if the client already has a part of it. */
    rest(): readonly Buffer[] | "lost" {
      if (passing) return "lost";
      const [payload] = [Buffer.concat(buffered).subarray(frameHeaderBytes)];
      return payload.length > 0 ? [dataFrameHeader(frame.id, payload.length, false), payload] : [];
    },
  };
}

function streamIdOf(control: Buffer): number | undefined {
  return control.length >= frameHeaderBytes + 4 ? control.readUInt32BE(frameHeaderBytes) & streamMask : undefined;
}

function parseDataHeader(bytes: Buffer): { id: number; fin: boolean; left: number } {
  const fin = (bytes.readUInt8(4) & finFlag) !== 0;
  return { id: bytes.readUInt32BE(0), fin, left: bytes.readUIntBE(5, 3) };
}
