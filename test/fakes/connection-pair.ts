import { Duplex } from "node:stream";
import { CodedError } from "../../src/lib/errors.ts";

/** Two ends of an in-process connection: data written at one end is read at the other, and a write completes when the other side's buffer
 *  (64 KiB) has room again. Ending one side is a half-close. Destroying an ended side leaves unread data to the other; destroying it
 *  earlier breaks the other off, like a reset. */
export function connectionPair(): readonly [Duplex, Duplex] {
  const [near, far] = [new ConnectionEnd(), new ConnectionEnd()];
  near.join(far);
  far.join(near);
  return [near, far];
}

class ConnectionEnd extends Duplex {
  #peer: ConnectionEnd | undefined;
  /** The peer's write that waits for room in this buffer. */
  #waiting: ((error?: Error) => void) | undefined;

  constructor() {
    super({ allowHalfOpen: true });
  }

  join(peer: ConnectionEnd): void {
    this.#peer = peer;
  }

  override _read(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    // Deferred as on a network connection: the peer's reaction never arrives before the write call has returned.
    process.nextTick(() => {
      if (!this.#peer || this.#peer.destroyed) done(connectionReset());
      else this.#peer.#take(chunk, done);
    });
  }

  override _final(done: (error?: Error | null) => void): void {
    process.nextTick(() => {
      if (this.#peer && !this.#peer.destroyed) this.#peer.push(null);
      done();
    });
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.(connectionReset());
    if (this.#peer && !this.#peer.destroyed && !this.writableFinished) this.#peer.destroy(connectionReset());
    done(error);
  }

  #take(chunk: Buffer, done: (error?: Error) => void): void {
    if (chunk.length === 0 || this.push(chunk)) return done();
    this.#waiting = done;
  }
}

function connectionReset(): CodedError {
  return new CodedError("unavailable", "connection reset by the other side");
}
