import type { Clock } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";
import type { Host, HostClock } from "../../src/seams/host.ts";
import { command } from "../../src/seams/command.ts";

export interface HostClockOptions {
  readonly clock: Clock;
  readonly run: Host["run"];
  readonly readFile: Host["fs"]["readFile"];
}

/** Reads the target's clock with `date`; accurate to half a second if `date` prints whole seconds only. */
export function sshClock({ clock, run, readFile }: HostClockOptions): HostClock {
  return {
    async offsetMs(signal) {
      const before = clock.now();
      const { stdout } = await run(command("date", [], ["+%s %N"]), { ...(signal && { signal }) });
      // The target read its clock about half a round trip ago.
      const here = (before + clock.now()) / 2;
      return Math.round(targetTime(stdout) - here);
    },
    bootId: async (signal) =>
      (await readFile("/proc/sys/kernel/random/boot_id", { ...(signal && { signal }) })).toString("latin1").trim(),
  };
}

/** Parses the output of `date "+%s %N"` to milliseconds since the epoch; only some implementations (GNU's) print nanoseconds. */
export function targetTime(printed: string): number {
  const [, seconds, nanoseconds] = /^(\d+) (\d{1,9})?/.exec(printed) ?? [];
  if (seconds === undefined) throw new CodedError("unknown", "the target's date printed no time");
  return Number(seconds) * 1000 + (nanoseconds === undefined ? 500 : Number(nanoseconds) / 1e6);
}
