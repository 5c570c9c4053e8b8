import { type Duplex, Writable } from "node:stream";
import { finished } from "node:stream/promises";
import type { Clock } from "../../lib/clock.ts";
import { CodedError, hasCode, messageOf } from "../../lib/errors.ts";
import { type Idle, createIdle } from "../../lib/idle.ts";
import { idleTimeoutMs, lingerTimeoutMs } from "../timeouts.ts";
import { sendData } from "./data.ts";
import {
  type SpdyFrame,
  FrameReader,
  type GoAwayStatus,
  type ResetStatus,
  frameType,
  goAwayFrame,
  goAwayStatus,
  pingFrame,
  protocolError,
  resetStatus,
  rstStreamFrame,
  synReplyFrame,
} from "./frames.ts";
import { type Headers, createHeaderReader, createHeaderWriter } from "./header-block.ts";
import { SpdyStream, resetByClient } from "./stream.ts";

/** Handler of the streams that the client opens. */
export interface StreamHandler {
  /** True to accept a stream with these headers; other streams are refused. The client is not read until the decision. */
  accepts(headers: Headers, id: number): boolean | Promise<boolean>;
  /** Called with an accepted stream, once its reply is being sent. */
  onOpened(stream: SpdyStream): void;
  /** Called when the client resets a stream; the stream itself fails too. */
  onReset?(stream: SpdyStream): void;
}

/** Maximum number of open streams: each may hold 64 KiB of unread data. */
const maxStreams = 512;
/** Maximum size of unsent replies to control frames, bytes; beyond it, no more frames are read. */
const maxUnsentReplyBytes = 1 << 16;
const streamMask = 0x7fff_ffff;

/** Server side of a SPDY/3.1 connection, in the dialect of Kubernetes' clients: the client opens all streams. There is no flow control
 *  with windows, which those clients neither grant nor use; the transport's backpressure bounds the memory, so that an unread stream
 *  blocks the others.
 *  @see https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/ */
export class SpdyConnection {
  readonly #socket: Duplex;
  readonly #handler: StreamHandler;
  readonly #clock: Clock;
  readonly #idle: Idle;
  readonly #gone = new AbortController();
  readonly #streams = new Map<number, SpdyStream>();
  readonly #frames = new FrameReader();
  readonly #headersIn = createHeaderReader();
  readonly #headersOut = createHeaderWriter();
  #lastId = 0;
  #closing = false;
  #goneAway = false;
  #answers = 0;
  #answersSent = Promise.withResolvers<void>();

  /** Takes over an upgraded socket. */
  constructor({
    socket,
    handler,
    clock,
  }: { readonly socket: Duplex; readonly handler: StreamHandler; readonly clock: Clock }) {
    this.#socket = socket;
    this.#handler = handler;
    this.#clock = clock;
    this.#idle = createIdle(clock, idleTimeoutMs, () =>
      this.#break(new CodedError("deadline_exceeded", "the connection is idle")),
    );
    socket.on("error", () => undefined);
    socket.once("close", () => this.#lose(new CodedError("cancelled", "the client has disconnected")));
    socket.pipe(this.#sink());
  }

  /** Aborts when the connection ends: the client has closed or aborted it or violated the protocol, or it was closed here. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Sends a GOAWAY after all written data, and discards further input until the client hangs up (within 10 s). @returns when the
   *  connection is gone. */
  async close(): Promise<void> {
    this.#goodbye(goAwayStatus.ok);
    await finished(this.#socket).catch(() => undefined);
  }

  /** Ends the connection immediately. */
  #break(error: CodedError): void {
    this.#lose(error);
    this.#socket.destroy();
  }

  /** Fails all streams and pending replies: the client is lost. */
  #lose(error: CodedError): void {
    this.#closing = true;
    this.#idle.stop();
    this.#answersSent.resolve();
    for (const stream of this.#streams.values()) stream.fail(error);
    this.#streams.clear();
    this.#gone.abort(error);
  }

  #goodbye(status: GoAwayStatus): void {
    if (this.#socket.destroyed || this.#socket.writableEnded) return;
    this.#socket.end(goAwayFrame(this.#lastId, status));
    this.#lose(new CodedError("cancelled", "the connection is closed"));
    const linger = this.#clock.after(lingerTimeoutMs, () => this.#socket.destroy());
    this.#socket.once("close", () => linger.cancel());
  }

  /** Creates the sink of the socket's bytes, which handles one frame after another. */
  #sink(): Writable {
    return new Writable({
      write: (chunk: Buffer, _encoding, done) => void this.#receive(chunk, done),
      final: (done) => {
        this.#break(new CodedError("cancelled", "the client hung up"));
        done();
      },
    }).on("error", () => undefined);
  }

  async #receive(chunk: Buffer, done: () => void): Promise<void> {
    this.#idle.touch();
    try {
      for (const frame of this.#frames.read(chunk)) {
        if (this.#closing) return;
        await this.#take(frame);
        if (this.#answers > maxUnsentReplyBytes) await this.#answersSent.promise;
      }
    } catch (error) {
      if (hasCode(error, "invalid_argument")) return this.#goodbye(goAwayStatus.protocolError);
      this.#break(new CodedError("unknown", messageOf(error), { cause: error }));
    } finally {
      done();
    }
  }

  #take(frame: SpdyFrame): Promise<void> | undefined {
    if (frame.kind === "control") return this.#control(frame.type, frame.payload, frame.fin);
    const stream = this.#streams.get(frame.id);
    if (!stream) {
      if (frame.id === 0) throw protocolError("data on stream 0");
      if (frame.id > this.#lastId) this.#answer(rstStreamFrame(frame.id, resetStatus.invalidStream));
      return undefined;
    }
    const room = stream.receive(frame.piece);
    if (frame.fin) stream.receiveEnd();
    return room;
  }

  #control(type: number, payload: Buffer, fin: boolean): Promise<void> | undefined {
    switch (type) {
      case frameType.synStream:
        return this.#synStream(payload, fin);
      case frameType.rstStream:
        this.#rstStream(streamId(payload, 8));
        return undefined;
      case frameType.ping:
        // Odd numbers are the client's pings; the server sends none.
        if (uint32At(payload, 0, 4) % 2 === 1) this.#answer(pingFrame(uint32At(payload, 0, 4)));
        return undefined;
      case frameType.goAway:
        this.#goneAway = true;
        return undefined;
      case frameType.synReply:
      case frameType.headers:
        // Their content is not used, but the compression of later header blocks refers to it.
        this.#headersIn.read(payload.subarray(4));
        if (fin) this.#streams.get(streamId(payload, 4))?.receiveEnd();
        return undefined;
      default:
        // SETTINGS, WINDOW_UPDATE and unknown frames are ignored.
        return undefined;
    }
  }

  async #synStream(payload: Buffer, fin: boolean): Promise<void> {
    const id = streamId(payload, 10);
    const headers = this.#headersIn.read(payload.subarray(10));
    if (this.#goneAway) return;
    if (id % 2 === 0 || id <= this.#lastId) return this.#refuse(id, resetStatus.protocolError);
    this.#lastId = id;
    const isAccepted = this.#streams.size < maxStreams && (await this.#handler.accepts(headers, id));
    if (this.#closing) return;
    if (!isAccepted) return this.#refuse(id, resetStatus.refusedStream);
    const stream = new SpdyStream(id, headers, {
      data: (of, data, last, done) => this.#send(of, data, last, done),
      closed: (of, whole) => {
        if (this.#streams.delete(of) && !whole) this.#refuse(of, resetStatus.cancel);
      },
    });
    this.#streams.set(id, stream);
    this.#answer(synReplyFrame(id, this.#headersOut.write(new Map())));
    if (fin) stream.receiveEnd();
    this.#handler.onOpened(stream);
  }

  #rstStream(id: number): void {
    const stream = this.#streams.get(id);
    if (!stream) return;
    this.#streams.delete(id);
    stream.fail(resetByClient());
    this.#handler.onReset?.(stream);
  }

  #refuse(id: number, status: ResetStatus): void {
    this.#answer(rstStreamFrame(id, status));
  }

  /** Sends a frame of the connection itself. */
  #answer(frame: Buffer): void {
    if (!this.#socket.writable) return;
    if (this.#answers === 0) this.#answersSent = Promise.withResolvers<void>();
    this.#answers += frame.length;
    this.#socket.write(frame, () => {
      this.#answers -= frame.length;
      if (this.#answers === 0) this.#answersSent.resolve();
    });
  }

  #send(id: number, data: Buffer, fin: boolean, done: (error?: Error | null) => void): void {
    if (!this.#socket.writable) return done(new CodedError("cancelled", "the client has disconnected"));
    this.#idle.touch();
    sendData(this.#socket, { id, data, fin }, done);
  }
}

/** Returns the stream ID of a control frame. */
function streamId(payload: Buffer, atLeast: number): number {
  const id = uint32At(payload, 0, atLeast) & streamMask;
  if (id === 0) throw protocolError("control frame for stream 0");
  return id;
}

function uint32At(payload: Buffer, at: number, atLeast: number): number {
  if (payload.length < atLeast) throw protocolError("control frame is too short");
  return payload.readUInt32BE(at);
}
