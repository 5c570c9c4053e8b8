import type { Duplex } from "node:stream";
import { finished } from "node:stream/promises";

/** Joins two byte streams: what one side sends the other receives, with the backpressure of pipes, so that never more than
 *  both streams' own windows are in memory. The end of one direction is handed on as a half-close while the other goes on.
 *  A side that fails after its end, such as one that has closed and is written to, has said all: that still arrives.
 *  Both streams are destroyed when it settles, however it settles; the caller gives up both.
 *  @returns when both directions have ended and all is written.
 *  @throws the first stream's error, or AbortError when `signal` aborts. */
export async function splice(a: Duplex, b: Duplex, signal: AbortSignal): Promise<void> {
  const ends = Promise.all([over(a, b, signal), over(b, a, signal)]);
  a.pipe(b);
  b.pipe(a);
  try {
    await ends;
  } finally {
    a.destroy();
    b.destroy();
  }
}

/** Both halves of a stream have ended. */
async function over(stream: Duplex, other: Duplex, signal: AbortSignal): Promise<void> {
  try {
    await finished(stream, { signal });
  } catch (error) {
    if (signal.aborted || !stream.readableEnded) throw error;
    // Nobody takes what the other says any more: it goes nowhere, and its end is waited for.
    other.resume();
  }
}
