import type { Clock } from "../lib/clock.ts";

/** An interruptible wait between two probes. */
export interface Pause {
  /** Resolves after `ms` (never, if undefined), when poked, or when the signal aborts. */
  wait(ms: number | undefined): Promise<void>;
  /** Resolves after `ms` or when the signal aborts; pokes in between are ignored. */
  waitUninterrupted(ms: number): Promise<void>;
  /** Ends `until`; a poke before it is remembered. */
  poke(): void;
}

/** All waits share one abort listener: a node may run fifty probes a second, and a listener each would cost more than the probe. */
export function createPause(clock: Clock, signal: AbortSignal): Pause {
  let poked = false;
  /** The current wait. */
  let current: { readonly end: () => void; readonly isInterruptible: boolean } | undefined;
  signal.addEventListener("abort", () => current?.end(), { once: true });
  const wait = async (ms: number | undefined, isInterruptible: boolean) => {
    if (!signal.aborted && !(isInterruptible && poked)) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = ms === undefined ? undefined : clock.after(Math.max(0, ms), resolve);
      current = { end: resolve, isInterruptible };
      await promise;
      timer?.cancel();
    }
    current = undefined;
    poked = false;
  };
  return {
    wait: (ms) => wait(ms, true),
    waitUninterrupted: (ms) => wait(ms, false),
    poke() {
      poked = true;
      if (current?.isInterruptible) current.end();
    },
  };
}
