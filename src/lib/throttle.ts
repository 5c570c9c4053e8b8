import type { Clock } from "./clock.ts";

/** Throttles a call: at once, and then at most once per interval; requests within the interval share one call at its end.
 *  @param intervalMs milliseconds. */
export function throttle(call: () => void, intervalMs: number, clock: Pick<Clock, "monotonic" | "after">): () => void {
  let due = Number.NEGATIVE_INFINITY;
  let waiting = false;
  const now = () => {
    waiting = false;
    due = clock.monotonic() + intervalMs;
    call();
  };
  return () => {
    if (waiting) return;
    const ms = due - clock.monotonic();
    if (ms <= 0) return now();
    waiting = true;
    clock.after(ms, now);
  };
}
