import type { Clock, Timer } from "./clock.ts";

/** Keys that become due at given times, one timer each; the earliest time for a key wins. */
export interface WorkQueue {
  /** Calls back for `key` in `delayMs` milliseconds, unless it is due earlier already. */
  add(key: string, delayMs: number): void;
  /** Cancels the key. */
  drop(key: string): void;
  /** Cancels all keys. */
  stop(): void;
}

/** @param onDue called once for each key when it is due; the key is removed first. */
export function createWorkQueue(clock: Clock, onDue: (key: string) => void): WorkQueue {
  const waiting = new Map<string, { readonly at: number; readonly timer: Timer }>();
  const drop = (key: string) => {
    waiting.get(key)?.timer.cancel();
    waiting.delete(key);
  };
  return {
    add(key, delayMs) {
      const at = clock.monotonic() + delayMs;
      const known = waiting.get(key);
      if (known && known.at <= at) return;
      drop(key);
      const timer = clock.after(delayMs, () => {
        waiting.delete(key);
        onDue(key);
      });
      waiting.set(key, { at, timer });
    },
    drop,
    stop() {
      for (const key of waiting.keys()) drop(key);
    },
  };
}
