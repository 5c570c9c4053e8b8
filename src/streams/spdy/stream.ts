import { Duplex } from "node:stream";
import { CodedError } from "../../lib/errors.ts";
import type { Headers } from "./header-block.ts";

/** Access of a stream to its connection. */
export interface StreamWire {
  /** Sends data on a stream; calls back when the transport has accepted it. */
  data(id: number, data: Buffer, fin: boolean, done: (error?: Error | null) => void): void;
  /** Called when the stream has ended on this side. `whole` is true if both directions ended properly. */
  closed(id: number, whole: boolean): void;
}

/** One stream of a SPDY connection. Its readable side ends with the client's half-close; its writable side sends to the client. A
 *  stream that the client resets, or whose connection breaks, fails with `cancelled`; its errors need no listener. */
export class SpdyStream extends Duplex {
  readonly id: number;
  readonly headers: Headers;
  readonly #wire: StreamWire;
  #room = Promise.withResolvers<void>();
  #finReceived = false;
  #finSent = false;
  #lost = false;

  constructor(id: number, headers: Headers, wire: StreamWire) {
    super({ allowHalfOpen: true });
    this.id = id;
    this.headers = headers;
    this.#wire = wire;
    this.on("error", () => undefined);
  }

  /** Accepts the client's data. @returns a promise of room for more if the buffer is full. */
  receive(piece: Buffer): Promise<void> | undefined {
    if (this.destroyed || this.#finReceived || piece.length === 0) return undefined;
    this.#room = Promise.withResolvers<void>();
    return this.push(piece) ? undefined : this.#room.promise;
  }

  /** To be called when the client has ended its direction of this stream. */
  receiveEnd(): void {
    if (this.#finReceived || this.destroyed) return;
    this.#finReceived = true;
    this.push(null);
  }

  /** To be called when the client has reset the stream, or is gone. */
  fail(error: CodedError): void {
    this.#lost = true;
    this.destroy(error);
  }

  override _read(): void {
    this.#room.resolve();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    this.#wire.data(this.id, chunk, false, done);
  }

  override _final(done: (error?: Error | null) => void): void {
    this.#finSent = true;
    this.#wire.data(this.id, Buffer.alloc(0), true, done);
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.#room.resolve();
    this.#wire.closed(this.id, this.#lost || (this.#finSent && this.#finReceived));
    done(error);
  }
}

export function resetByClient(): CodedError {
  return new CodedError("cancelled", "the client reset the stream");
}
