import { type Cut, FrameCutter, together } from "./frame-cutter.ts";
import { beginsSpdy, blockAt, dataHead, frameType, headBytes } from "./frames.ts";
import { createHeaderReader } from "./header-block.ts";

const finFlag = 1;
const streamMask = 0x7fff_ffff;
/** Bytes of a frame that are kept until it is whole: more than servers send in one. */
const mostKept = 1 << 16;
/** Sees to it that a SPDY client hears how its command ended. What is not SPDY passes as it is, and is told nothing. */
export interface ToldEnd {
  /** Takes note of what the client sends. @throws CodedError invalid_argument for a breach of SPDY. */
  fromClient(chunk: Buffer): void;
  /** The server's bytes that go on now, without a copy: data frames go on whole, for within one there is no place for a word.
   *  @throws CodedError invalid_argument for a breach of SPDY. */
  fromServer(chunk: Buffer): readonly Buffer[];
  /** Last bytes for the client once the server says no more: the part of a last frame that came, and the status, unless something was said on the
   *  error stream, that has ended, or the client got a part of a frame already, as it does of one that is very long. */
  atEnd(): readonly Buffer[];
}

/** @param status what the client is told of a command when nobody said how it ended. */
export function createToldEnd(status: Buffer): ToldEnd {
  const errors = createErrorStreamFinder();
  const frames = createWholeFrames(errors.id);
  return {
    fromClient: errors.look,
    // A server that speaks first is none that waits for streams.
    fromServer: (chunk) => (errors.isSpdy() ? frames.take(chunk) : [chunk]),
    atEnd() {
      const id = errors.id();
      const rest = frames.rest();
      if (rest === "lost" || id === undefined || frames.heard()) return rest === "lost" ? [] : rest;
      return [...rest, dataHead(id, status.length, true), status];
    },
  };
}

/** Finds the stream that a client opens for errors. */
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
  // Header blocks of one direction build on each other: each must be read.
  const headers = reader.read(cut.bytes.subarray(at));
  return cut.type === frameType.synStream && headers.get("streamtype") === "error" ? idIn(cut.bytes) : undefined;
}

/** Keeps data frames until they are whole.
 *  @param errorStream the stream that is listened on. */
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
    /** Whether anything was said on the error stream, or it has ended. */
    heard: () => heard,
    take(chunk: Buffer): readonly Buffer[] {
      const before = kept.length;
      const out: Buffer[] = [];
      for (const cut of cutter.cut(chunk)) out.push(...(cut.is === "data" ? data(cut.bytes) : control(cut)));
      return out.length > before ? [...out.slice(0, before), together(out.slice(before))] : out;
    },
    /** The part that came of a frame that is not whole, as a whole one; "lost" when the client has a part of it. */
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
