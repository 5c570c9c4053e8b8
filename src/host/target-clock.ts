import type { Clock } from "../lib/clock.ts";
import { codeOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";

/** The target's wall clock, for comparing the target's timestamps (exits of containers, log lines) with our time. All times
 *  are milliseconds since the epoch. */
export interface TargetClock {
  /** Current time of the target's clock. */
  now(): number;
  /** Converts a time of the target's clock to ours. */
  toOurs(targetTime: number): number;
}

export interface TargetClockDeps {
  readonly host: Pick<Host, "clock">;
  readonly link?: TargetLink;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Interval between readings of the target's clock, milliseconds: clocks drift slowly, but may be set. */
const rereadMs = 60_000;
/** Longest wait for the target's answer, milliseconds. */
const patienceMs = 10_000;

/** Keeps the offset of the target's clock: read at startup (0 until then), every minute, and when a lost target is back. */
export function createTargetClock({ host, link, clock, log }: TargetClockDeps): TargetClock & Service {
  let offsetMs = 0;
  const first = Promise.withResolvers<void>();
  const read = async (signal: AbortSignal) => {
    if (link?.trouble()) return;
    try {
      offsetMs = await host.clock.offsetMs(clock.within(patienceMs, signal));
    } catch (error) {
      if (!signal.aborted) log.debug({ err: error, code: codeOf(error) }, "the target's clock could not be read");
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
        await pause(clock, rereadMs, changed.promise, signal);
      }
      unsubscribe?.();
    },
  };
}
