import type { Clock } from "./clock.ts";

/** A token bucket, refilled at `perSecond` up to `burst`. A call takes `cost` tokens (default 1) and returns false if there
 *  are too few; a negative cost returns tokens. A rate of 0 means no limit. */
export function createTokenBucket(
  clock: Pick<Clock, "monotonic">,
  perSecond: number,
  burst: number,
): (cost?: number) => boolean {
  const bucket = createTokens(clock, perSecond, burst);
  return (cost = 1) => {
    if (perSecond === 0) return true;
    if (bucket.available() < cost) return false;
    bucket.take(cost);
    return true;
  };
}

/** Allows `qps` calls per second on average, and bursts of `burst`. */
export type RateLimit = ReturnType<typeof createRateLimit>;

/** A token bucket whose callers wait. A non-positive `qps` means no limit.
 *  @param options.qps calls per second
 *  @param options.burst calls that an idle bucket allows at once
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ kubeAPIQPS, kubeAPIBurst */
export function createRateLimit(
  clock: Pick<Clock, "monotonic" | "sleep">,
  { qps, burst }: { readonly qps: number; readonly burst: number },
) {
  const bucket = createTokens(clock, qps, burst);
  return {
    /** Resolves in order of the calls, when the call may be made; rejects when the signal aborts. */
    async wait(signal?: AbortSignal): Promise<void> {
      if (qps <= 0) return;
      // Each caller takes its token immediately; a negative balance is the queue.
      const balance = bucket.available() - 1;
      bucket.take(1);
      if (balance >= 0) return;
      try {
        await clock.sleep((-balance / qps) * 1000, signal);
      } catch (error) {
        bucket.take(-1);
        throw error;
      }
    },
    /** Takes a token if one is available. @returns milliseconds until the next call may be made; 0 if a token was taken. */
    take(): number {
      if (qps <= 0) return 0;
      const missing = 1 - bucket.available();
      // A tiny missing fraction is not a wait: a timer cannot be that short.
      if (missing > 1e-6) return (missing / qps) * 1000;
      bucket.take(1);
      return 0;
    },
  };
}

/** The tokens of a bucket: negative while callers have taken more than there were. */
function createTokens(clock: Pick<Clock, "monotonic">, perSecond: number, burst: number) {
  let tokens = burst;
  let filledAt = clock.monotonic();
  return {
    available(): number {
      const now = clock.monotonic();
      tokens = Math.min(burst, tokens + ((now - filledAt) / 1000) * perSecond);
      filledAt = now;
      return tokens;
    },
    take: (cost: number) => void (tokens -= cost),
  };
}
