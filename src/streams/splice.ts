import type { Duplex } from "node:stream";
import { finished } from "node:stream/promises";

/** Pipes two byte streams into each other. Backpressure applies, so that no more is buffered than the streams' own windows. The end of one
 *  direction becomes a half-close; the other direction continues. If a stream fails after its readable side has ended (for example on a
 *  write after the peer closed), everything that it sent is still delivered. Takes ownership of both streams and destroys them when the
 *  promise settles. @returns when both directions have ended and everything is written. @throws the first stream's
 *  error, or AbortError when `signal` aborts. */
export async function splice(a: Duplex, b: Duplex, signal: AbortSignal): Promise<void> {
  const ends = Promise.all([untilEnded(a, b, signal), untilEnded(b, a, signal)]);
  a.pipe(b);
  b.pipe(a);
  try {
    await ends;
  } finally {
    a.destroy();
    b.destroy();
  }
}

/** Waits until both directions of a stream have ended. */
async function untilEnded(stream: Duplex, other: Duplex, signal: AbortSignal): Promise<void> {
  try {
    await finished(stream, { signal });
  } catch (error) {
    if (signal.aborted || !stream.readableEnded) throw error;
    // No reader is left for the other side's data: discards it and waits for its end.
    other.resume();
  }
}
