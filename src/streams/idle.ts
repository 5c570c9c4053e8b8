import type { Clock } from "../lib/clock.ts";

/** Notices that nothing happens. */
export interface Idle {
  /** Something happened. */
  touch(): void;
  stop(): void;
}

/** Calls `onIdle` once when nothing has been touched for `ms` milliseconds. Touching costs no timer. */
export function createIdle(clock: Clock, ms: number, onIdle: () => void): Idle {
  let last = clock.monotonic();
  const look = () => {
    const left = last + ms - clock.monotonic();
    if (left <= 0) onIdle();
    else timer = clock.after(left, look);
  };
  let timer = clock.after(ms, look);
  return {
    touch: () => {
      last = clock.monotonic();
    },
    stop: () => timer.cancel(),
  };
}
