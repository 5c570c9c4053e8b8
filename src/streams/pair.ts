import { Duplex } from "node:stream";
import { CodedError } from "../lib/errors.ts";

/** Two ends of a connection that never leaves the process: what is written at one is read at the other, and a write is done
 *  when the other side's buffer (64 KiB) has room again. Ending one side is a half-close. Destroying a side that has ended
 *  leaves the other what is still to be read; destroying it before breaks the other off, as a reset does. */
export function connectionPair(): readonly [Duplex, Duplex] {
  const [near, far] = [new End(), new End()];
  near.join(far);
  far.join(near);
  return [near, far];
}

class End extends Duplex {
  #peer: End | undefined;
  /** The peer's write that waits for room here. */
  #waiting: ((error?: Error) => void) | undefined;

  constructor() {
    super({ allowHalfOpen: true });
  }

  join(peer: End): void {
    this.#peer = peer;
  }

  override _read(): void {
    const waiting = this.#waiting;
    this.#waiting = undefined;
    waiting?.();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: (error?: Error | null) => void): void {
    // As with any connection, nobody hears an answer before having finished the sentence.
    process.nextTick(() => {
      if (!this.#peer || this.#peer.destroyed) done(brokenOff());
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
    waiting?.(brokenOff());
    if (this.#peer && !this.#peer.destroyed && !this.writableFinished) this.#peer.destroy(brokenOff());
    done(error);
  }

  #take(chunk: Buffer, done: (error?: Error) => void): void {
    if (chunk.length === 0 || this.push(chunk)) return done();
    this.#waiting = done;
  }
}

function brokenOff(): CodedError {
  return new CodedError("unavailable", "connection broken off by the other side");
}
