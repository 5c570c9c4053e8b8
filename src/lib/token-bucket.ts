import type { Clock } from "./clock.ts";

/** Tokens that come back at `perSecond`, `burst` at most; a call takes `cost` of them (1 unless given) if there are that many, and
 *  a negative cost gives tokens back. A rate of 0
 *  has no limit. */
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
