import { type Duplex, Writable } from "node:stream";
import { CodedError } from "../../lib/errors.ts";
import { sendData } from "./data.ts";
import {
  type SpdyFrame,
  FrameReader,
  frameType,
  pingFrame,
  resetStatus,
  rstStreamFrame,
  synStreamFrame,
} from "./frames.ts";
import { type Headers, createHeaderWriter } from "./header-block.ts";
import { SpdyStream } from "./stream.ts";

const streamMask = 0x7fff_ffff;

/** Client side of a SPDY/3.1 connection with a runtime's streaming server. A stream may be written to as soon as it is opened, because
 *  servers process frames in order. Its readable side ends, after all received data, when the server ends it, resets it (those servers
 *  end a connection this way) or is gone. There is no flow control with windows, which those servers neither grant nor use: an unread
 *  stream blocks the others.
 *  @see https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/ */
export class SpdyClient {
  readonly #socket: Duplex;
  readonly #streams = new Map<number, SpdyStream>();
  readonly #frames = new FrameReader();
  readonly #headers = createHeaderWriter();
  readonly #ended = new AbortController();
  #nextId = 1;

  /** Takes over an upgraded socket. */
  constructor(socket: Duplex) {
    this.#socket = socket;
    socket.on("error", () => undefined);
    // After a proper end, bytes that were read before may still be in the sink.
    socket.once("close", () => socket.readableEnded || this.#endAll());
    socket.pipe(this.#sink());
  }

  /** Aborts when the connection ends; its streams may still have unread data. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  /** Opens a stream without waiting for the server's reply: a refused stream ends. */
  open(headers: Headers): SpdyStream {
    const id = this.#nextId;
    this.#nextId += 2;
    const stream = new SpdyStream(id, headers, {
      data: (of, data, last, done) => this.#send(of, data, last, done),
      closed: (of, whole) => {
        if (this.#streams.delete(of) && !whole && this.#socket.writable)
          this.#socket.write(rstStreamFrame(of, resetStatus.cancel));
      },
    });
    this.#streams.set(id, stream);
    if (this.#socket.writable) this.#socket.write(synStreamFrame(id, this.#headers.write(headers)));
    else stream.receiveEnd();
    return stream;
  }

  /** Abandons the connection immediately; streams that have not ended fail. */
  close(): void {
    this.#socket.destroy();
    for (const stream of this.#streams.values()) stream.fail(new CodedError("cancelled", "the connection is closed"));
    this.#streams.clear();
  }

  #sink(): Writable {
    return new Writable({
      write: (chunk: Buffer, _encoding, done) => void this.#receive(chunk, done),
      final: (done) => {
        this.#endAll();
        done();
      },
    }).on("error", () => undefined);
  }

  async #receive(chunk: Buffer, done: () => void): Promise<void> {
    try {
      for (const frame of this.#frames.read(chunk)) {
        const room = this.#take(frame);
        if (room) await room;
      }
    } catch {
      // A peer that does not speak SPDY gets no message.
      this.close();
    } finally {
      done();
    }
  }

  #take(frame: SpdyFrame): Promise<void> | undefined {
    if (frame.kind === "control") {
      this.#control(frame.type, frame.payload, frame.fin);
      return undefined;
    }
    const stream = this.#streams.get(frame.id);
    const room = stream?.receive(frame.piece);
    if (frame.fin) stream?.receiveEnd();
    return room;
  }

  /** Handles a control frame. SYN_REPLY is ignored: it only confirms a stream. */
  #control(type: number, payload: Buffer, fin: boolean): void {
    if (payload.length < 4) return;
    const id = payload.readUInt32BE(0) & streamMask;
    // Even numbers are the server's pings.
    if (type === frameType.ping && id % 2 === 0) this.#socket.write(pingFrame(id));
    if (type === frameType.rstStream || (fin && type !== frameType.ping)) this.#streams.get(id)?.receiveEnd();
  }

  /** Ends all streams after the server has ended the connection. */
  #endAll(): void {
    this.#ended.abort();
    for (const stream of this.#streams.values()) stream.receiveEnd();
  }

  #send(id: number, data: Buffer, fin: boolean, done: (error?: Error | null) => void): void {
    if (!this.#socket.writable) return done(new CodedError("cancelled", "the server has disconnected"));
    sendData(this.#socket, { id, data, fin }, done);
  }
}
