import { type Downward, blockAt, createDownward, headBytes } from "./downward.ts";
import { type Cut, FrameCutter, together } from "./frame-cutter.ts";
import { frameType, protocolError, resetStatus, rstStreamFrame, withHeaderBlock } from "./frames.ts";
import type { StreamGate } from "./stream-gate.ts";

/** The first two bytes of a control frame of SPDY/3.1. */
const spdyStart = 0x8003;

/** A conversation between a client and a server that is far away, some of whose answers are given here. */
export interface Replies {
  /** What of the client's bytes goes on, and what the client is answered.
   *  @throws CodedError invalid_argument for a breach of SPDY, or a client that the gate cuts off. */
  fromClient(chunk: Buffer): { readonly onward: Buffer; readonly answer: Buffer };
  /** What of the server's bytes goes on, and whatever else is due. @throws CodedError invalid_argument. */
  fromServer(chunk: Buffer): Buffer;
  /** So many answers wait that no more is to be read from the client. */
  isFull(): boolean;
}

/** @param gate is asked about each stream that the client opens. What is no SPDY passes as it is. */
export function createReplies(gate: StreamGate): Replies {
  const up = new FrameCutter();
  const down = createDownward(gate);
  const client = createUpward(gate, down);
  let speaks: "spdy" | "other" | undefined;
  return {
    fromClient(chunk) {
      speaks ??= chunk.length >= 2 && chunk.readUInt16BE(0) === spdyStart ? "spdy" : "other";
      if (speaks === "other") return { onward: chunk, answer: nothing };
      const [onward, answers]: [Buffer[], Buffer[]] = [[], []];
      for (const cut of up.cut(chunk)) {
        const { goesOn, answer } = cut.is === "data" ? client.data(cut) : client.control(cut);
        if (goesOn) onward.push(goesOn);
        if (answer) answers.push(answer);
      }
      return { onward: together(onward), answer: Buffer.concat(answers) };
    },
    fromServer(chunk) {
      // A server that speaks first is none that waits for streams.
      speaks ??= "other";
      return speaks === "other" ? chunk : down.pass(chunk);
    },
    isFull: down.isFull,
  };
}

const nothing = Buffer.alloc(0);

/** What becomes of a frame of the client's. */
interface Outcome {
  readonly goesOn?: Buffer;
  readonly answer?: Buffer | undefined;
}

function createUpward(gate: StreamGate, down: Downward) {
  /** Streams of which the server knows nothing, as far as their client has not done with them. */
  const refused = new Set<number>();

  function opens(id: number, frame: Buffer): Outcome {
    const block = frame.subarray(blockAt[frameType.synStream]);
    const verdict = gate.open(id, block);
    if (verdict.is === "passed") return { goesOn: frame, answer: down.accept(id) };
    refused.add(id);
    const { text } = verdict;
    const answer =
      text === undefined ? down.insert(() => rstStreamFrame(id, resetStatus.refusedStream)) : down.tell(id, text);
    return { goesOn: asHeaders(id, block), answer };
  }

  function control({ type, bytes }: Extract<Cut, { is: "control" }>): Outcome {
    const at = type === frameType.synStream ? blockAt[type] : headBytes + 4;
    if (at === undefined || bytes.length < at) return { goesOn: bytes };
    const id = bytes.readUInt32BE(headBytes);
    switch (type) {
      case frameType.synStream:
        return opens(id, bytes);
      case frameType.synReply:
      case frameType.headers:
        throw protocolError("headers of a client for a stream that is open");
      case frameType.rstStream:
        down.forget(id);
        gate.ended(id, "client");
        return refused.delete(id) ? {} : { goesOn: bytes };
      case frameType.ping:
        // Odd numbers are the client's pings; even ones would be its answers.
        return id % 2 === 1 ? { answer: down.insert(() => bytes) } : { goesOn: bytes };
      default:
        return { goesOn: bytes };
    }
  }

  function data({ id, fin, bytes }: Extract<Cut, { is: "data" }>): Outcome {
    if (!refused.has(id)) return { goesOn: bytes };
    if (fin) refused.delete(id);
    return {};
  }
  return { control, data };
}

/** The header block of a stream that the server is not to hear of, in a frame that means nothing to it: later blocks build on it. */
function asHeaders(id: number, block: Buffer): Buffer {
  const before = Buffer.alloc(headBytes + 4);
  before.writeUInt16BE(spdyStart, 0);
  before.writeUInt16BE(frameType.headers, 2);
  before.writeUInt32BE(id, headBytes);
  return withHeaderBlock(before, block);
}
