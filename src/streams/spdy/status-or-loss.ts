import { Duplex } from "node:stream";
import { type Cut, FrameCutter, together } from "./frame-cutter.ts";
import { dataHead, frameType } from "./frames.ts";
import { createHeaderReader } from "./header-block.ts";

/** The first two bytes of a control frame of SPDY/3.1. */
const spdyStart = 0x8003;
const headBytes = 8;
const finFlag = 1;
const streamMask = 0x7fff_ffff;
/** Where a frame's header block begins, by its type. */
const headersAt: Readonly<Record<number, number>> = {
  [frameType.synStream]: headBytes + 10,
  [frameType.synReply]: headBytes + 4,
  [frameType.headers]: headBytes + 4,
};

/** A server's connection that runs a command for a SPDY client, on which the client hears how the command ended in any case: when it
 *  ends or breaks before anything was said on the error stream, `status` is said there, and it ends in good order, since clients take
 *  an end without a status for success. All else passes as it is, but for data frames that come in parts: each part is a frame of
 *  its own, so that there is a place for the status at any time. Takes the connection over.
 *  @param status what the client is told, in the version of the protocol that was agreed on. */
export function withStatusOrLoss(server: Duplex, status: Buffer): Duplex {
  const errors = createErrorStreamFinder();
  const down = createWholeFrames(errors.id);
  const joined = new Duplex({
    allowHalfOpen: true,
    read: () => void server.resume(),
    write(chunk: Buffer, _encoding, done) {
      const breach = breachIn(() => errors.look(chunk));
      // What a server no longer takes is dropped: its end is what the client hears next.
      if (breach || !server.writable) done(breach);
      else server.write(chunk, () => done());
    },
    final: (done) => void (server.writable ? server.end(() => done()) : done()),
    destroy(error, done) {
      server.destroy();
      done(error);
    },
  });
  let over = false;
  const end = () => {
    if (over) return;
    over = true;
    const id = errors.id();
    if (id !== undefined && !down.heard()) joined.push(Buffer.concat([dataHead(id, status.length, true), status]));
    joined.push(null);
  };
  // Whoever has given it up no longer listens.
  joined.on("error", () => undefined);
  server.on("error", () => undefined);
  server.pause();
  server.on("data", (chunk: Buffer) => {
    let onward = chunk;
    // A server that speaks first is none that waits for streams.
    const breach = breachIn(() => {
      if (errors.isSpdy()) onward = down.pass(chunk);
    });
    if (breach) joined.destroy(breach);
    else if (onward.length > 0 && !joined.push(onward)) server.pause();
  });
  server.once("end", end);
  server.once("close", end);
  return joined;
}

function breachIn(read: () => void): Error | undefined {
  try {
    read();
    return undefined;
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
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
    /** Takes what the client sends, until the stream is found. What is not SPDY has none. */
    look(chunk: Buffer): void {
      speaks ??= chunk.length >= 2 && chunk.readUInt16BE(0) === spdyStart ? "spdy" : "other";
      if (speaks === "other" || found !== undefined) return;
      for (const cut of cutter.cut(chunk)) found ??= errorStreamIn(cut, reader);
    },
  };
}

function errorStreamIn(cut: Cut, reader: ReturnType<typeof createHeaderReader>): number | undefined {
  if (cut.is !== "control") return undefined;
  const at = headersAt[cut.type];
  if (at === undefined) return undefined;
  // Header blocks of one direction build on each other: each must be read.
  const headers = reader.read(cut.bytes.subarray(at));
  return cut.type === frameType.synStream && headers.get("streamtype") === "error" ? idIn(cut.bytes) : undefined;
}

/** Makes frames whole that come in parts.
 *  @param errorStream the stream that is listened on. */
function createWholeFrames(errorStream: () => number | undefined) {
  const cutter = new FrameCutter();
  let frame = { id: 0, fin: false, left: 0 };
  let heard = false;

  const data = (bytes: Buffer): Buffer => {
    const begins = frame.left === 0;
    if (begins) frame = headIn(bytes);
    const piece = begins ? bytes.subarray(headBytes) : bytes;
    frame.left -= piece.length;
    const fin = frame.fin && frame.left === 0;
    if (frame.id === errorStream() && (piece.length > 0 || fin)) heard = true;
    if (begins && frame.left === 0) return bytes;
    return piece.length === 0 ? piece : Buffer.concat([dataHead(frame.id, piece.length, fin), piece]);
  };
  const control = (type: number, fin: boolean, bytes: Buffer): Buffer => {
    const ends = type === frameType.rstStream || (fin && type === frameType.synReply);
    if (ends && idIn(bytes) === errorStream()) heard = true;
    return bytes;
  };
  return {
    /** Whether anything was said on the error stream, or it has ended. */
    heard: () => heard,
    /** @throws CodedError invalid_argument for a breach of SPDY. */
    pass(chunk: Buffer): Buffer {
      const parts: Buffer[] = [];
      for (const cut of cutter.cut(chunk))
        parts.push(cut.is === "data" ? data(cut.bytes) : control(cut.type, cut.fin, cut.bytes));
      return together(parts);
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
