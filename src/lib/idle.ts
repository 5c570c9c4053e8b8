import type { Clock } from "../lib/clock.ts";

/** Detects inactivity. */
export interface Idle {
  /** Records activity. */
  touch(): void;
  stop(): void;
}

/** Calls `onIdle` once after `ms` milliseconds without activity. Recording activity creates no timer. */
export function createIdle(clock: Clock, ms: number, onIdle: () => void): Idle {
  let last = clock.monotonic();
  const check = () => {
    const left = last + ms - clock.monotonic();
    if (left <= 0) onIdle();
    else timer = clock.after(left, check);
  };
  let timer = clock.after(ms, check);
  return {
    touch: () => {
      last = clock.monotonic();
    },
    stop: () => timer.cancel(),
  };
}
