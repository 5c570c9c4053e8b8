import { Duplex } from "node:stream";
import { CodedError } from "../../lib/errors.ts";
import { type Cut, FrameCutter, together } from "./frame-cutter.ts";
import { dataHead, frameType, synReplyFrame, withHeaderBlock } from "./frames.ts";
import { createHeaderReader, createHeaderWriter } from "./header-block.ts";

/** The first two bytes of a control frame of SPDY/3.1. */
const spdyStart = 0x8003;
const headBytes = 8;

/** Where a frame's header block begins, by its type. */
const blockAt: Readonly<Record<number, number>> = {
  [frameType.synStream]: headBytes + 10,
  [frameType.synReply]: headBytes + 4,
  [frameType.headers]: headBytes + 4,
};

/** A client's connection on which every stream that the client opens is accepted at once, in the place of a server that is far away:
 *  Kubernetes' clients open a stream only once the one before was accepted. Its pings are answered here: one that reached a server
 *  which has said all it has to say and closed, and whose last words are still on their way, would make that machine's kernel drop
 *  them. All else passes as it is, and what is not SPDY altogether. Takes the connection over; half-closes, backpressure and ends are the connection's own.
 *  @see https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/ */
export function withEarlyReplies(client: Duplex): Duplex {
  const replies = createReplies((frame) => void client.write(frame));
  const joined = new Duplex({
    allowHalfOpen: true,
    read: () => void client.resume(),
    write(chunk: Buffer, _encoding, done) {
      let onward: Buffer;
      try {
        onward = replies.fromServer(chunk);
      } catch (error) {
        return done(error instanceof Error ? error : new Error(String(error)));
      }
      if (onward.length === 0) done();
      else client.write(onward, done);
    },
    final: (done) => void client.end(done),
    destroy(error, done) {
      client.destroy();
      done(error);
    },
  });
  // Whoever has given it up no longer listens.
  joined.on("error", () => undefined);
  client.pause();
  client.on("data", (chunk: Buffer) => {
    let onward: Buffer;
    try {
      onward = replies.fromClient(chunk);
    } catch (error) {
      return void joined.destroy(error instanceof Error ? error : new Error(String(error)));
    }
    if (onward.length > 0 && !joined.push(onward)) client.pause();
  });
  client.once("end", () => joined.push(null));
  client.on("error", (error) => joined.destroy(error));
  client.once("close", () => void ((client.readableEnded && client.writableFinished) || joined.destroy(brokenOff())));
  return joined;
}

function brokenOff(): CodedError {
  return new CodedError("unavailable", "the client broke the connection off");
}

interface Replies {
  /** What of the client's bytes goes on. @throws CodedError invalid_argument for a breach of SPDY. */
  fromClient(chunk: Buffer): Buffer;
  /** What of the server's bytes goes on, and whatever else is due. @throws CodedError invalid_argument. */
  fromServer(chunk: Buffer): Buffer;
}

/** @param send puts a frame into what the client gets, at once. */
function createReplies(send: (frame: Buffer) => void): Replies {
  const up = new FrameCutter();
  const down = createDown();
  let speaks: "spdy" | "other" | undefined;
  return {
    fromClient(chunk) {
      speaks ??= chunk.length >= 2 && chunk.readUInt16BE(0) === spdyStart ? "spdy" : "other";
      if (speaks === "other") return chunk;
      const onward: Buffer[] = [];
      for (const cut of up.cut(chunk)) {
        const answer = isOwnPing(cut)
          ? down.insert(() => cut.bytes)
          : isSynStream(cut)
            ? down.accept(idIn(cut))
            : undefined;
        if (answer) send(answer);
        if (!isOwnPing(cut)) onward.push(cut.bytes);
      }
      return together(onward);
    },
    fromServer(chunk) {
      // A server that speaks first is none that waits for streams.
      speaks ??= "other";
      return speaks === "other" ? chunk : down.pass(chunk);
    },
  };
}

function isSynStream(cut: Cut): boolean {
  return cut.is === "control" && cut.type === frameType.synStream && cut.bytes.length >= headBytes + 4;
}

/** A ping of the client's, and no answer to one of the server's: clients' have odd numbers. */
function isOwnPing(cut: Cut): boolean {
  return (
    cut.is === "control" && cut.type === frameType.ping && cut.bytes.length >= headBytes + 4 && idIn(cut) % 2 === 1
  );
}

function idIn({ bytes }: Cut): number {
  return bytes.readUInt32BE(headBytes);
}

/** The server's side of the conversation as the client gets it. Header blocks of one direction build on each other, so with
 *  replies of ours among them all are written anew. */
function createDown() {
  const cutter = new FrameCutter();
  const reader = createHeaderReader();
  const writer = createHeaderWriter();
  const accepted = new Set<number>();
  /** Frames that go out when the data frame under way has ended. */
  const due: (() => Buffer)[] = [];
  const insert = (make: () => Buffer): Buffer | undefined => {
    if (!cutter.inData) return make();
    due.push(make);
    return undefined;
  };
  const replyTo = (id: number) => synReplyFrame(id, writer.write(new Map()));

  const control = (type: number, fin: boolean, frame: Buffer): readonly Buffer[] => {
    const at = blockAt[type];
    if (at === undefined || frame.length < at) return [frame];
    const headers = reader.read(frame.subarray(at));
    const id = frame.readUInt32BE(headBytes);
    if (type === frameType.synReply && accepted.delete(id)) return fin ? [dataHead(id, 0, true)] : [];
    return [withHeaderBlock(frame.subarray(0, at), writer.write(headers))];
  };
  return {
    /** @returns the frame, unless it has to wait. */
    insert,
    /** @returns the reply, unless it has to wait. */
    accept(id: number): Buffer | undefined {
      accepted.add(id);
      return insert(() => replyTo(id));
    },
    pass(chunk: Buffer): Buffer {
      const parts: Buffer[] = [];
      for (const cut of cutter.cut(chunk)) {
        if (cut.is === "data") parts.push(cut.bytes);
        else parts.push(...control(cut.type, cut.fin, cut.bytes));
        if (!cutter.inData) parts.push(...due.splice(0).map((make) => make()));
      }
      return together(parts);
    },
  };
}
