import { codeOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";

/** The target's wall clock, to compare the target's timestamps (container exits, log lines) with our time. All times are
 *  milliseconds since the epoch. */
export interface TargetClock {
  /** Current time of the target's clock. */
  now(): number;
  /** Converts a time of the target's clock to ours. */
  toOurs(targetTime: number): number;
}

export interface TargetClockDeps extends ClockAndLog {
  readonly host: Pick<Host, "clock">;
  readonly link?: TargetLink;
}

/** Interval between reads of the target's clock, milliseconds: clocks drift slowly, but may be set. */
const readIntervalMs = 60_000;
const readTimeoutMs = 10_000;

/** Tracks the offset of the target's clock: read at startup (0 until then), every minute, and when a lost target is back. */
export function createTargetClock({ host, link, clock, log }: TargetClockDeps): TargetClock & Runnable {
  let offsetMs = 0;
  const first = Promise.withResolvers<void>();
  const read = async (signal: AbortSignal) => {
    if (link?.trouble()) return;
    try {
      offsetMs = await host.clock.offsetMs(clock.within(readTimeoutMs, signal));
    } catch (error) {
      if (!signal.aborted) log.debug({ err: error, code: codeOf(error) }, "cannot read the target's clock");
    }
  };
  return {
    name: "target clock",
    now: () => clock.now() + offsetMs,
    toOurs: (targetTime) => targetTime - offsetMs,
    ready: (signal) => Promise.race([first.promise, onAbort(signal)]),
    async run(signal) {
      let changed = Promise.withResolvers<void>();
      const unsubscribe = link?.onChange(() => changed.resolve());
      while (!signal.aborted) {
        changed = Promise.withResolvers<void>();
        await read(signal);
        first.resolve();
        await pause(clock, readIntervalMs, changed.promise, signal);
      }
      unsubscribe?.();
    },
  };
}
