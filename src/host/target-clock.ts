import type { Clock } from "../lib/clock.ts";
import { codeOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { pause } from "../lib/pause.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { Host } from "../seams/host.ts";
import type { TargetLink } from "../seams/provider.ts";

/** The target's wall clock, for comparing what the target stamped (ends of containers, log lines) with our time.
 *  All times are milliseconds since the epoch. */
export interface TargetClock {
  /** What the target's clock shows now. */
  now(): number;
  /** A time of the target's clock, by ours. */
  toOurs(targetTime: number): number;
}

export interface TargetClockDeps {
  readonly host: Pick<Host, "clock">;
  readonly link?: TargetLink;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Clocks drift slowly, but somebody may set one: the target's is read again this often, milliseconds. */
const rereadMs = 60_000;
/** A target that does not answer is not waited for longer, milliseconds. */
const patienceMs = 10_000;

/** Keeps the difference between the target's clock and ours at hand: read at the start (until then there is none), every
 *  minute, and when a lost target is back. */
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
