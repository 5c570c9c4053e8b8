import type { Duplex } from "node:stream";
import { finished } from "node:stream/promises";

/** Joins two byte streams in both directions, with the backpressure of pipes, so that memory holds at most both streams' own windows. The
 *  end of one direction is passed on as a half-close while the other continues. A side that fails after its end, for example because it
 *  has closed and is written to, has sent everything: that data still arrives. Both streams are destroyed when it settles, successfully
 *  or not; the caller gives up both. @returns when both directions have ended and everything is written. @throws the first stream's
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
