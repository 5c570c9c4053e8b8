import type { Clock } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { Host, HostClock } from "../../src/seams/host.ts";

export interface HostClockOptions {
  readonly clock: Clock;
  readonly run: Host["run"];
  readonly readFile: Host["fs"]["readFile"];
}

/** The target's time, read with `date`; where that tells whole seconds only, to half a second. */
export function sshClock({ clock, run, readFile }: HostClockOptions): HostClock {
  return {
    async offsetMs(signal) {
      const before = clock.now();
      const { stdout } = await run(["date", "+%s %N"], { ...(signal && { signal }) });
      // The target looked at its clock about half a round trip ago.
      const here = (before + clock.now()) / 2;
      return Math.round(targetTime(stdout) - here);
    },
    bootId: async (signal) =>
      (await readFile("/proc/sys/kernel/random/boot_id", { ...(signal && { signal }) })).toString("latin1").trim(),
  };
}

/** Milliseconds since the epoch in what `date "+%s %N"` printed; nanoseconds are GNU's and not every date's. */
export function targetTime(printed: string): number {
  const [, seconds, nanoseconds] = /^(\d+) (\d{1,9})?/.exec(printed) ?? [];
  if (seconds === undefined) throw new CodedError("unknown", "the target's date did not tell the time");
  return Number(seconds) * 1000 + (nanoseconds === undefined ? 500 : Number(nanoseconds) / 1e6);
}
