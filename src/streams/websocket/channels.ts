import { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { Clock } from "../../lib/clock.ts";
import { CodedError } from "../../lib/errors.ts";
import { type Idle, createIdle } from "../../lib/idle.ts";
import { idleTimeoutMs } from "../timeouts.ts";

export interface ChannelsDeps {
  /** The WebSocket, which is paused; nothing has been read from it yet. */
  readonly ws: WebSocket;
  /** True for text messages: the channel as a digit, the data in base64. */
  readonly base64: boolean;
  /** True if a client's message (255, n) ends channel n. */
  readonly supportsClose: boolean;
  readonly clock: Clock;
}

/** Number of the channel for end messages. */
const closeChannel = 255;
const digitZero = 0x30;
/** Maximum data in one sent message, bytes. */
const maxPieceBytes = 1 << 16;
/** WebSocket status of a normal end. */
export const normalClosure = 1000;

/** Numbered byte streams over one WebSocket: each message begins with its channel. Messages for unopened channels are discarded; an
 *  unread channel blocks the others.
 *  @see https://github.com/kubernetes/streaming (wsstream) */
export class Channels {
  readonly #ws: WebSocket;
  readonly #base64: boolean;
  readonly #closes: boolean;
  readonly #idle: Idle;
  readonly #gone = new AbortController();
  readonly #channels = new Map<number, Channel>();
  /** Channels whose readers' buffers are full. */
  readonly #full = new Set<number>();

  constructor({ ws, base64, supportsClose, clock }: ChannelsDeps) {
    this.#ws = ws;
    this.#base64 = base64;
    this.#closes = supportsClose;
    this.#idle = createIdle(clock, idleTimeoutMs, () => ws.terminate());
    ws.on("message", (data: Buffer) => this.#receive(data));
    ws.once("close", () => this.#lose(new CodedError("cancelled", "the client has disconnected")));
  }

  /** Aborts when the connection ends. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Opens a channel in both directions. It fails when the client disconnects; its errors need no listener. */
  open(number: number): Channel {
    const channel = new Channel({
      send: (data, done) => this.#send(number, data, done),
      more: () => this.#drained(number),
    });
    this.#channels.set(number, channel);
    return channel;
  }

  /** Starts to read, once all channels are open. */
  start(): void {
    this.#ws.resume();
  }

  /** Closes the WebSocket after all written data. @returns when the connection is gone. */
  async close(): Promise<void> {
    const closed = Promise.withResolvers<void>();
    this.#ws.once("close", closed.resolve);
    if (this.#ws.readyState === this.#ws.CLOSED) return;
    this.#ws.close(normalClosure);
    // Further messages are discarded, so that the client's own close message is read.
    for (const channel of this.#channels.values()) channel.destroy();
    this.#channels.clear();
    this.#ws.resume();
    await closed.promise;
  }

  #receive(data: Buffer): void {
    this.#idle.touch();
    const [first, second] = data;
    if (first === undefined) return;
    if (this.#closes && first === closeChannel) {
      if (data.length !== 2) return this.#ws.terminate();
      this.#channels.get(second ?? closeChannel)?.receiveEnd();
      return;
    }
    const number = this.#base64 ? first - digitZero : first;
    const rest = data.subarray(1);
    const bytes = this.#base64 ? Buffer.from(rest.toString("latin1"), "base64") : rest;
    if (this.#channels.get(number)?.receive(bytes) !== false) return;
    this.#full.add(number);
    this.#ws.pause();
  }

  #drained(number: number): void {
    if (this.#full.delete(number) && this.#full.size === 0) this.#ws.resume();
  }

  #send(number: number, data: Buffer, done: (error?: Error | null) => void): void {
    this.#idle.touch();
    const [piece, rest] = [data.subarray(0, maxPieceBytes), data.subarray(maxPieceBytes)];
    const message = this.#base64
      ? `${String.fromCharCode(digitZero + number)}${piece.toString("base64")}`
      : Buffer.concat([Buffer.from([number]), piece]);
    this.#ws.send(message, (error) => {
      if (error || rest.length === 0) done(error);
      else this.#send(number, rest, done);
    });
  }

  #lose(error: CodedError): void {
    this.#idle.stop();
    for (const channel of this.#channels.values()) channel.destroy(error);
    this.#channels.clear();
    this.#gone.abort(error);
  }
}

interface ChannelWire {
  send(data: Buffer, done: (error?: Error | null) => void): void;
  /** Called when the channel's buffer has room again. */
  more(): void;
}

/** One channel. Its end is not sent to the client, because the protocol has no message for it. */
export class Channel extends Duplex {
  readonly #wire: ChannelWire;
  #ended = false;

  constructor(wire: ChannelWire) {
    super({ allowHalfOpen: true });
    this.#wire = wire;
    this.on("error", () => undefined);
  }

  /** Accepts the client's data. @returns false if the buffer is full. */
  receive(data: Buffer): boolean {
    return this.destroyed || this.#ended || data.length === 0 || this.push(data);
  }

  /** To be called when the client has ended the channel. */
  receiveEnd(): void {
    if (this.#ended || this.destroyed) return;
    this.#ended = true;
    this.push(null);
  }

  /** Sends an empty message, which signals to the client that the connection is established. */
  greet(): void {
    this.#wire.send(Buffer.alloc(0), () => undefined);
  }

  override _read(): void {
    this.#wire.more();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#wire.send(chunk, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    done();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#wire.more();
    done(error);
  }
}
