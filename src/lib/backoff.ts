import type { Clock } from "./clock.ts";

/** Exponential delays by key: first `initialMs`, doubled up to `maxMs`, forgotten after `forgetMs` without use. */
export type Backoff = ReturnType<typeof createBackoff>;

export interface BackoffOptions {
  readonly clock: Clock;
  readonly initialMs: number;
  readonly maxMs: number;
  /** Default: twice `maxMs`. */
  readonly forgetMs?: number;
}

/** @see https://pkg.go.dev/k8s.io/client-go/util/flowcontrol#Backoff */
export function createBackoff({ clock, initialMs, maxMs, forgetMs = 2 * maxMs }: BackoffOptions) {
  const entries = new Map<string, { delay: number; updated: number }>();
  const expired = (updated: number, at: number) => at - updated > forgetMs;
  return {
    /** Records a failure of `key` at `at` (ms since epoch, default now) and returns the new delay, ms. A failure after the entry
     *  has expired starts again at `initialMs`. */
    next(key: string, at: number = clock.now()): number {
      const known = entries.get(key);
      const delay = known && !expired(known.updated, at) ? Math.min(known.delay * 2, maxMs) : initialMs;
      entries.set(key, { delay, updated: clock.now() });
      return delay;
    },
    /** Milliseconds until `key` may be tried again, counted from `since` (ms since epoch, default its last failure). */
    remaining(key: string, since?: number): number {
      const known = entries.get(key);
      if (!known || expired(known.updated, since ?? clock.now())) return 0;
      return Math.max(0, (since ?? known.updated) + known.delay - clock.now());
    },
    /** The current delay of `key`, ms; 0 without one. */
    delay: (key: string): number => entries.get(key)?.delay ?? 0,
    reset: (key: string): void => void entries.delete(key),
    collect(): void {
      const now = clock.now();
      for (const [key, { updated }] of entries) if (expired(updated, now)) entries.delete(key);
    },
  };
}
