import type { Clock } from "../lib/clock.ts";

/** Allows `qps` calls per second on average, and bursts of `burst`. */
export interface RateLimit {
  /** Resolves in order of the calls, when the call may be made; rejects when the signal aborts. */
  wait(signal?: AbortSignal): Promise<void>;
  /** Takes a token if one is available. @returns milliseconds until the next call may be made; 0 if a token was taken. */
  take(): number;
}

/** A token bucket. A non-positive `qps` means no limit.
 *  @param options.qps calls per second
 *  @param options.burst calls that an idle bucket allows at once
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ kubeAPIQPS, kubeAPIBurst */
export function createRateLimit(clock: Clock, options: { readonly qps: number; readonly burst: number }): RateLimit {
  const { qps, burst } = options;
  let tokens = burst;
  let at = clock.monotonic();
  const refill = () => {
    const now = clock.monotonic();
    tokens = Math.min(burst, tokens + ((now - at) / 1000) * qps);
    at = now;
  };
  return {
    async wait(signal) {
      if (qps <= 0) return;
      refill();
      // Each caller takes its token immediately; a negative balance is the queue.
      tokens -= 1;
      if (tokens >= 0) return;
      try {
        await clock.sleep((-tokens / qps) * 1000, signal);
      } catch (error) {
        tokens += 1;
        throw error;
      }
    },
    take() {
      if (qps <= 0) return 0;
      refill();
      // A tiny missing fraction is not a wait: a timer cannot be that short.
      if (tokens < 1 - 1e-6) return ((1 - tokens) / qps) * 1000;
      tokens -= 1;
      return 0;
    },
  };
}
