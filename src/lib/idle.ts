import type { Clock } from "../lib/clock.ts";

/** Detects inactivity. */
export type Idle = ReturnType<typeof createIdle>;

/** Calls `onIdle` once after `ms` milliseconds without activity. Recording activity creates no timer. */
export function createIdle(clock: Clock, ms: number, onIdle: () => void) {
  let last = clock.monotonic();
  const check = () => {
    const left = last + ms - clock.monotonic();
    if (left <= 0) onIdle();
    else timer = clock.after(left, check);
  };
  let timer = clock.after(ms, check);
  return {
    /** Records activity. */
    touch: (): void => {
      last = clock.monotonic();
    },
    stop: (): void => timer.cancel(),
  };
}
