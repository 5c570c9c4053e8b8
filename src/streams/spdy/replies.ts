import { type Downward, createDownward } from "./downward.ts";
import { type Cut, FrameCutter, together } from "./frame-cutter.ts";
import {
  beginsSpdy,
  blockAt,
  frameType,
  headBytes,
  protocolError,
  resetStatus,
  rstStreamFrame,
  spdyStart,
  withHeaderBlock,
} from "./frames.ts";
import type { StreamGate, Verdict } from "./stream-gate.ts";

/** Result of processing bytes from the client. */
export interface Progress {
  /** Bytes to forward to the server. */
  readonly onward: Buffer;
  /** Frames to send to the client. */
  readonly answer: Buffer;
  /** Set if more input is pending: continue when it settles, and do not read from the client before. */
  readonly waits?: Promise<void>;
}

/** A conversation between a client and a distant server, with some replies generated here. */
export interface Replies {
  /** @throws CodedError invalid_argument for a protocol violation, or if the gate disconnects the client. */
  fromClient(chunk: Buffer): Progress;
  /** Continues with pending input. @throws as `fromClient`. */
  goOn(): Progress;
  /** Server bytes to forward, and other frames that are due. @throws CodedError invalid_argument. */
  fromServer(chunk: Buffer): Buffer;
  /** True if so many replies wait that the client must not be read. */
  isFull(): boolean;
}

/** @param gate decides about each stream that the client opens. Protocols other than SPDY pass unchanged. */
export function createReplies(gate: StreamGate): Replies {
  const up = new FrameCutter();
  const down = createDownward(gate);
  const client = createUpward(gate, down);
  let speaks: "spdy" | "other" | undefined;
  let cuts: Iterator<Cut> = [][Symbol.iterator]();
  let decided: (() => Outcome) | undefined;

  function goOn(): Progress {
    const [onward, answers]: [Buffer[], Buffer[]] = [[], []];
    const keep = ({ goesOn, answer }: Outcome) => {
      if (goesOn) onward.push(goesOn);
      if (answer) answers.push(answer);
    };
    if (decided) keep(decided());
    decided = undefined;
    const progress = (waits?: Promise<void>): Progress => ({
      onward: together(onward),
      answer: Buffer.concat(answers),
      ...(waits && { waits }),
    });
    for (let next = cuts.next(); !next.done; next = cuts.next()) {
      const outcome = next.value.is === "data" ? client.data(next.value) : client.control(next.value);
      if (outcome instanceof Promise) return progress(outcome.then((later) => void (decided = later)));
      keep(outcome);
    }
    return progress();
  }
  return {
    fromClient(chunk) {
      speaks ??= beginsSpdy(chunk) ? "spdy" : "other";
      if (speaks === "other") return { onward: chunk, answer: Buffer.alloc(0) };
      cuts = up.cut(chunk);
      return goOn();
    },
    goOn,
    fromServer(chunk) {
      // A server that sends first does not wait for streams.
      speaks ??= "other";
      return speaks === "other" ? chunk : down.pass(chunk);
    },
    isFull: down.isFull,
  };
}

/** Result of processing a client's frame. */
interface Outcome {
  readonly goesOn?: Buffer;
  readonly answer?: Buffer | undefined;
}

function createUpward(gate: StreamGate, down: Downward) {
  /** Streams unknown to the server that the client has not finished yet. */
  const refused = new Set<number>();

  function opened(id: number, frame: Buffer, verdict: Verdict): Outcome {
    if (verdict.is === "passed") return { goesOn: frame, answer: down.accept(id) };
    refused.add(id);
    const { text } = verdict;
    const answer =
      text === undefined ? down.insert(() => rstStreamFrame(id, resetStatus.refusedStream)) : down.tell(id, text);
    return { goesOn: asHeaders(id, blockOf(frame)), answer };
  }

  function control({ type, bytes }: Extract<Cut, { is: "control" }>): Outcome | Promise<() => Outcome> {
    const at = type === frameType.synStream ? blockAt[type] : headBytes + 4;
    if (at === undefined || bytes.length < at) return { goesOn: bytes };
    const id = bytes.readUInt32BE(headBytes);
    switch (type) {
      case frameType.synStream: {
        const verdict = gate.open(id, blockOf(bytes));
        // Header blocks are encoded when they are sent, because server frames may come in between.
        if (verdict instanceof Promise) return verdict.then((later) => () => opened(id, bytes, later));
        return opened(id, bytes, verdict);
      }
      case frameType.synReply:
      case frameType.headers:
        throw protocolError("client sent headers on an open stream");
      case frameType.rstStream:
        down.forget(id);
        gate.ended(id, "client");
        return refused.delete(id) ? {} : { goesOn: bytes };
      case frameType.ping:
        // Odd numbers are the client's pings; even ones would be its replies.
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

function blockOf(synStream: Buffer): Buffer {
  return synStream.subarray(blockAt[frameType.synStream]);
}

/** Wraps the header block of a stream that is hidden from the server in a frame that the server ignores: later blocks depend on it. */
function asHeaders(id: number, block: Buffer): Buffer {
  const before = Buffer.alloc(headBytes + 4);
  before.writeUInt16BE(spdyStart, 0);
  before.writeUInt16BE(frameType.headers, 2);
  before.writeUInt32BE(id, headBytes);
  return withHeaderBlock(before, block);
}
