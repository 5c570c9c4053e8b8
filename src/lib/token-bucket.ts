import type { Clock } from "./clock.ts";

/** Tokens that come back at `perSecond`, `burst` at most; a call takes one if there is one. A rate of 0 has no limit. */
export function createTokenBucket(clock: Pick<Clock, "monotonic">, perSecond: number, burst: number): () => boolean {
  let tokens = burst;
  let filledAt = clock.monotonic();
  return () => {
    if (perSecond === 0) return true;
    const now = clock.monotonic();
    tokens = Math.min(burst, tokens + ((now - filledAt) / 1000) * perSecond);
    filledAt = now;
    if (tokens < 1) return false;
    tokens -= 1;
    return true;
  };
}
