import type { Clock, Timer } from "./clock.ts";

/** Keys that become due at given times, one timer each; the earliest time for a key wins. @param onDue called once for each
 *  key when it is due; the key is removed first. */
export function createWorkQueue(clock: Clock, onDue: (key: string) => void) {
  const waiting = new Map<string, { readonly at: number; readonly timer: Timer }>();
  const drop = (key: string) => {
    waiting.get(key)?.timer.cancel();
    waiting.delete(key);
  };
  return {
    /** Calls back for `key` in `delayMs` milliseconds, unless it is due earlier already. */
    add(key: string, delayMs: number): void {
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
    /** Cancels the key. */
    drop,
    stop(): void {
      for (const key of waiting.keys()) drop(key);
    },
  };
}
