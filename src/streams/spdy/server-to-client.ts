import { FrameSplitter, concatBuffers } from "./frame-splitter.ts";
import {
  headerBlockOffset,
  dataFrameHeader,
  frameType,
  frameHeaderBytes,
  synReplyFrame,
  withHeaderBlock,
} from "./frames.ts";
import { createHeaderReader, createHeaderWriter } from "./header-block.ts";
import type { StreamGate } from "./stream-gate.ts";

/** Maximum number of own frames that wait for the end of a data frame; beyond it, the client is not read. */
const maxPendingFrames = 1000;

/** The server-to-client direction of a conversation. */
export interface ServerToClient {
  /** Inserts a frame between the server's frames. @returns the frame, unless it has to wait for the end of the current data frame. */
  insert(make: () => Buffer): Buffer | undefined;
  /** Accepts a stream in place of the server, whose own reply is omitted. @returns the reply, unless it has to wait. */
  accept(id: number): Buffer | undefined;
  /** Accepts a stream that the server does not see, writes a text on it and ends it. @returns these frames, unless they have to wait. */
  acceptWithText(id: number, text: string): Buffer | undefined;
  /** Records that the client has reset a stream: the server's reply must not follow. */
  forget(id: number): void;
  /** Server bytes to forward, and other frames that are due. @throws CodedError invalid_argument for a protocol violation. */
  forward(chunk: Buffer): Buffer;
  /** True if too many frames wait. */
  isFull(): boolean;
}

/** Header blocks of one direction share their compression state, so all are re-encoded once own replies are inserted. */
export function createServerToClient(gate: StreamGate): ServerToClient {
  const splitter = new FrameSplitter();
  const reader = createHeaderReader();
  const writer = createHeaderWriter();
  const accepted = new Set<number>();
  /** Frames to send after the current data frame. */
  const pending: (() => Buffer)[] = [];

  const control = (type: number, fin: boolean, frame: Buffer): readonly Buffer[] => {
    const id = frame.length >= frameHeaderBytes + 4 ? frame.readUInt32BE(frameHeaderBytes) : 0;
    if (fin || type === frameType.rstStream) gate.ended(id, "server");
    if (type === frameType.rstStream) accepted.delete(id);
    const at = headerBlockOffset[type];
    if (at === undefined || frame.length < at) return [frame];
    const headers = reader.read(frame.subarray(at));
    if (type === frameType.synReply && accepted.delete(id)) return fin ? [dataFrameHeader(id, 0, true)] : [];
    return [withHeaderBlock(frame.subarray(0, at), writer.write(headers))];
  };
  const insert = (make: () => Buffer): Buffer | undefined => {
    if (!splitter.inData) return make();
    pending.push(make);
    return undefined;
  };
  const replyTo = (id: number) => synReplyFrame(id, writer.write(new Map()));
  return {
    insert,
    accept(id) {
      accepted.add(id);
      return insert(() => replyTo(id));
    },
    acceptWithText(id, text) {
      const bytes = Buffer.from(text);
      return insert(() => Buffer.concat([replyTo(id), dataFrameHeader(id, bytes.length, true), bytes]));
    },
    forget: (id) => void accepted.delete(id),
    forward(chunk) {
      const parts: Buffer[] = [];
      for (const cut of splitter.split(chunk)) {
        if (cut.kind === "control") parts.push(...control(cut.type, cut.fin, cut.bytes));
        else {
          parts.push(cut.bytes);
          if (cut.fin) gate.ended(cut.id, "server");
        }
        if (!splitter.inData) parts.push(...pending.splice(0).map((make) => make()));
      }
      return concatBuffers(parts);
    },
    isFull: () => pending.length > maxPendingFrames,
  };
}
