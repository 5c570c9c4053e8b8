import type { Duplex } from "node:stream";
import { finished } from "node:stream/promises";

/** Joins two byte streams: what one side sends the other receives, with the backpressure of pipes, so that never more than
 *  both streams' own windows are in memory. The end of one direction is handed on as a half-close while the other goes on.
 *  Both streams are destroyed when it settles, however it settles; the caller gives up both.
 *  @returns when both directions have ended and all is written.
 *  @throws the first stream's error, or AbortError when `signal` aborts. */
export async function splice(a: Duplex, b: Duplex, signal: AbortSignal): Promise<void> {
  const ends = Promise.all([finished(a, { signal }), finished(b, { signal })]);
  a.pipe(b);
  b.pipe(a);
  try {
    await ends;
  } finally {
    a.destroy();
    b.destroy();
  }
}
