import { type ServerToClient, createServerToClient } from "./server-to-client.ts";
import { type FramePart, FrameSplitter, concatBuffers } from "./frame-splitter.ts";
import {
  isSpdy,
  headerBlockOffset,
  frameType,
  frameHeaderBytes,
  protocolError,
  resetStatus,
  rstStreamFrame,
  spdyPrefix,
  withHeaderBlock,
} from "./frames.ts";
import type { StreamGate, StreamDecision } from "./stream-gate.ts";

/** Result of processing bytes from the client. */
export interface ReplyProgress {
  /** Bytes to forward to the server. */
  readonly toServer: Buffer;
  /** Frames to send to the client. */
  readonly toClient: Buffer;
  /** Set if more input is pending: continue when it settles, and do not read from the client before. */
  readonly pending?: Promise<void>;
}

/** A conversation between a client and a distant server, with some replies generated here. */
export interface Replies {
  /** @throws CodedError invalid_argument for a protocol violation, or if the gate disconnects the client. */
  fromClient(chunk: Buffer): ReplyProgress;
  /** Continues with pending input. @throws as `fromClient`. */
  resume(): ReplyProgress;
  /** Server bytes to forward, and other frames that are due. @throws CodedError invalid_argument. */
  fromServer(chunk: Buffer): Buffer;
  /** True if so many replies wait that the client must not be read. */
  isFull(): boolean;
}

/** @param gate decides about each stream that the client opens. Protocols other than SPDY pass unchanged. */
export function createReplies(gate: StreamGate): Replies {
  const splitter = new FrameSplitter();
  const down = createServerToClient(gate);
  const client = createClientToServer(gate, down);
  let protocol: "spdy" | "other" | undefined;
  let parts: Iterator<FramePart> = [][Symbol.iterator]();
  let decided: (() => FrameOutcome) | undefined;

  function resume(): ReplyProgress {
    const [onward, answers]: [Buffer[], Buffer[]] = [[], []];
    const collect = ({ toServer, toClient }: FrameOutcome) => {
      if (toServer) onward.push(toServer);
      if (toClient) answers.push(toClient);
    };
    if (decided) collect(decided());
    decided = undefined;
    const progress = (pending?: Promise<void>): ReplyProgress => ({
      toServer: concatBuffers(onward),
      toClient: Buffer.concat(answers),
      ...(pending && { pending }),
    });
    for (let next = parts.next(); !next.done; next = parts.next()) {
      const outcome = next.value.kind === "data" ? client.data(next.value) : client.control(next.value);
      if (outcome instanceof Promise) return progress(outcome.then((later) => void (decided = later)));
      collect(outcome);
    }
    return progress();
  }
  return {
    fromClient(chunk) {
      protocol ??= isSpdy(chunk) ? "spdy" : "other";
      if (protocol === "other") return { toServer: chunk, toClient: Buffer.alloc(0) };
      parts = splitter.split(chunk);
      return resume();
    },
    resume,
    fromServer(chunk) {
      // A server that sends first does not wait for streams.
      protocol ??= "other";
      return protocol === "other" ? chunk : down.forward(chunk);
    },
    isFull: down.isFull,
  };
}

/** Result of processing a client's frame. */
interface FrameOutcome {
  readonly toServer?: Buffer;
  readonly toClient?: Buffer | undefined;
}

function createClientToServer(gate: StreamGate, down: ServerToClient) {
  /** Streams unknown to the server that the client has not finished yet. */
  const refused = new Set<number>();

  function opened(id: number, frame: Buffer, verdict: StreamDecision): FrameOutcome {
    if (verdict.kind === "passed") return { toServer: frame, toClient: down.accept(id) };
    refused.add(id);
    const { text } = verdict;
    const toClient =
      text === undefined
        ? down.insert(() => rstStreamFrame(id, resetStatus.refusedStream))
        : down.acceptWithText(id, text);
    return { toServer: headersFrame(id, headerBlockOf(frame)), toClient };
  }

  function control({
    type,
    bytes,
  }: Extract<FramePart, { kind: "control" }>): FrameOutcome | Promise<() => FrameOutcome> {
    const at = type === frameType.synStream ? headerBlockOffset[type] : frameHeaderBytes + 4;
    if (at === undefined || bytes.length < at) return { toServer: bytes };
    const id = bytes.readUInt32BE(frameHeaderBytes);
    switch (type) {
      case frameType.synStream: {
        const verdict = gate.open(id, headerBlockOf(bytes));
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
        return refused.delete(id) ? {} : { toServer: bytes };
      case frameType.ping:
        // Odd numbers are the client's pings; even ones would be its replies.
        return id % 2 === 1 ? { toClient: down.insert(() => bytes) } : { toServer: bytes };
      default:
        return { toServer: bytes };
    }
  }

  function data({ id, fin, bytes }: Extract<FramePart, { kind: "data" }>): FrameOutcome {
    if (!refused.has(id)) return { toServer: bytes };
    if (fin) refused.delete(id);
    return {};
  }
  return { control, data };
}

function headerBlockOf(synStream: Buffer): Buffer {
  return synStream.subarray(headerBlockOffset[frameType.synStream]);
}

/** Wraps the header block of a stream that is hidden from the server in a frame that the server ignores: later blocks depend on it. */
function headersFrame(id: number, block: Buffer): Buffer {
  const before = Buffer.alloc(frameHeaderBytes + 4);
  before.writeUInt16BE(spdyPrefix, 0);
  before.writeUInt16BE(frameType.headers, 2);
  before.writeUInt32BE(id, frameHeaderBytes);
  return withHeaderBlock(before, block);
}
