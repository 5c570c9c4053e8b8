import type { Clock } from "./clock.ts";

/** A token bucket, refilled at `perSecond` up to `burst`. A call takes `cost` tokens (default 1) and returns false if there
 *  are too few; a negative cost returns tokens. A rate of 0 means no limit. */
export function createTokenBucket(
  clock: Pick<Clock, "monotonic">,
  perSecond: number,
  burst: number,
): (cost?: number) => boolean {
  let tokens = burst;
  let filledAt = clock.monotonic();
  return (cost = 1) => {
    if (perSecond === 0) return true;
    const now = clock.monotonic();
    tokens = Math.min(burst, tokens + ((now - filledAt) / 1000) * perSecond);
    filledAt = now;
    if (tokens < cost) return false;
    tokens -= cost;
    return true;
  };
}
