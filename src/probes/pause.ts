import type { Clock } from "../lib/clock.ts";
import { onAbort } from "../lib/service-group.ts";

/** A wait between two looks that can be cut short. */
export interface Pause {
  /** Resolves after `ms` (never by itself for undefined), when poked, or when the signal aborts. */
  until(ms: number | undefined): Promise<void>;
  /** Resolves after `ms` or when the signal aborts; pokes meanwhile count for nothing. */
  firmly(ms: number): Promise<void>;
  /** Ends `until`; a poke that comes before it is not lost. */
  poke(): void;
}

export function createPause(clock: Clock, signal: AbortSignal): Pause {
  let poked = Promise.withResolvers<void>();
  const wait = async (ms: number | undefined, sooner: readonly Promise<void>[]) => {
    const ended = new AbortController();
    const elapsed = Promise.withResolvers<void>();
    const timer = ms === undefined ? undefined : clock.after(Math.max(0, ms), elapsed.resolve);
    await Promise.race([elapsed.promise, onAbort(signal, ended.signal), ...sooner]);
    ended.abort();
    timer?.cancel();
    poked = Promise.withResolvers<void>();
  };
  return {
    until: (ms) => wait(ms, [poked.promise]),
    firmly: (ms) => wait(ms, []),
    poke: () => poked.resolve(),
  };
}
