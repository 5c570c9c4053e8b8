import type { Clock } from "../lib/clock.ts";

/** A wait between two looks that can be cut short. */
export interface Pause {
  /** Resolves after `ms` (never by itself for undefined), when poked, or when the signal aborts. */
  until(ms: number | undefined): Promise<void>;
  /** Resolves after `ms` or when the signal aborts; pokes meanwhile count for nothing. */
  firmly(ms: number): Promise<void>;
  /** Ends `until`; a poke that comes before it is not lost. */
  poke(): void;
}

/** One listener serves all its waits: fifty a second are no rarity on a node, and each would cost more than its probe. */
export function createPause(clock: Clock, signal: AbortSignal): Pause {
  let poked = false;
  /** The wait under way. */
  let current: { readonly end: () => void; readonly isPokable: boolean } | undefined;
  signal.addEventListener("abort", () => current?.end(), { once: true });
  const wait = async (ms: number | undefined, isPokable: boolean) => {
    if (!signal.aborted && !(isPokable && poked)) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = ms === undefined ? undefined : clock.after(Math.max(0, ms), resolve);
      current = { end: resolve, isPokable };
      await promise;
      timer?.cancel();
    }
    current = undefined;
    poked = false;
  };
  return {
    until: (ms) => wait(ms, true),
    firmly: (ms) => wait(ms, false),
    poke() {
      poked = true;
      if (current?.isPokable) current.end();
    },
  };
}
