import { FrameCutter, together } from "./frame-cutter.ts";
import { blockAt, dataHead, frameType, headBytes, synReplyFrame, withHeaderBlock } from "./frames.ts";
import { createHeaderReader, createHeaderWriter } from "./header-block.ts";
import type { StreamGate } from "./stream-gate.ts";

/** Frames of ours that may wait for the end of a data frame before no more is read from the client. */
const mostDue = 1000;

/** The server's side of a conversation as the client gets it. */
export interface Downward {
  /** Puts a frame between the server's. @returns it, unless it has to wait for the end of a data frame that is under way. */
  insert(make: () => Buffer): Buffer | undefined;
  /** Accepts a stream in the server's place, whose own word on it is left out. @returns the reply, unless it has to wait. */
  accept(id: number): Buffer | undefined;
  /** Accepts a stream of which the server hears nothing, says a text on it and ends it. @returns that, unless it has to wait. */
  tell(id: number, text: string): Buffer | undefined;
  /** The client has reset a stream: the server may not answer it any more. */
  forget(id: number): void;
  /** The server's bytes that go on, and whatever else is due. @throws CodedError invalid_argument for a breach of SPDY. */
  pass(chunk: Buffer): Buffer;
  /** More frames wait than shall. */
  isFull(): boolean;
}

/** Header blocks of one direction build on each other, so with replies of ours among them all are written anew. */
export function createDownward(gate: StreamGate): Downward {
  const cutter = new FrameCutter();
  const reader = createHeaderReader();
  const writer = createHeaderWriter();
  const accepted = new Set<number>();
  /** Frames that go out when the data frame under way has ended. */
  const due: (() => Buffer)[] = [];

  const control = (type: number, fin: boolean, frame: Buffer): readonly Buffer[] => {
    const id = frame.length >= headBytes + 4 ? frame.readUInt32BE(headBytes) : 0;
    if (fin || type === frameType.rstStream) gate.ended(id, "server");
    if (type === frameType.rstStream) accepted.delete(id);
    const at = blockAt[type];
    if (at === undefined || frame.length < at) return [frame];
    const headers = reader.read(frame.subarray(at));
    if (type === frameType.synReply && accepted.delete(id)) return fin ? [dataHead(id, 0, true)] : [];
    return [withHeaderBlock(frame.subarray(0, at), writer.write(headers))];
  };
  const insert = (make: () => Buffer): Buffer | undefined => {
    if (!cutter.inData) return make();
    due.push(make);
    return undefined;
  };
  const replyTo = (id: number) => synReplyFrame(id, writer.write(new Map()));
  return {
    insert,
    accept(id) {
      accepted.add(id);
      return insert(() => replyTo(id));
    },
    tell(id, text) {
      const bytes = Buffer.from(text);
      return insert(() => Buffer.concat([replyTo(id), dataHead(id, bytes.length, true), bytes]));
    },
    forget: (id) => void accepted.delete(id),
    pass(chunk) {
      const parts: Buffer[] = [];
      for (const cut of cutter.cut(chunk)) {
        if (cut.is === "control") parts.push(...control(cut.type, cut.fin, cut.bytes));
        else {
          parts.push(cut.bytes);
          if (cut.fin) gate.ended(cut.id, "server");
        }
        if (!cutter.inData) parts.push(...due.splice(0).map((make) => make()));
      }
      return together(parts);
    },
    isFull: () => due.length > mostDue,
  };
}
