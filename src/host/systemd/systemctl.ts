import { CodedError, hasCode } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { versionOf } from "./bus-slices.ts";
import type { SliceUnits, UnitProperty } from "./slices.ts";

/** Exit codes of systemctl; where polkit decides, one who may not is told by the text alone. @see https://www.freedesktop.org/software/systemd/man/latest/systemctl.html */
const [denied, notLoaded] = [4, 5];
/** Properties that a slice gets by itself, or by a start only. */
const notAssigned = new Set(["Description", "Wants", "DefaultDependencies"]);

/** Slices by commands, for a target whose bus is out of reach. A slice is started by its name, and gets its properties after. */
export function commandSlices(host: Pick<Host, "run">): SliceUnits {
  const run = async (argv: readonly string[], signal: AbortSignal) => {
    try {
      return await host.run(["systemctl", "--no-ask-password", ...argv], { signal });
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
      throw new CodedError("unavailable", "the target has neither a system bus nor systemctl", { cause: error });
    }
  };
  const must = async (argv: readonly string[], signal: AbortSignal, passes: readonly number[] = [0]) => {
    const { code, stdout, stderr } = await run(argv, signal);
    if (passes.includes(code)) return { code, stdout };
    const said = stderr.trim().split("\n")[0] ?? "";
    const mayNot = code === denied || /access denied|authentication required|permission denied/i.test(stderr);
    throw new CodedError(mayNot ? "permission_denied" : "unavailable", `systemctl ${argv.join(" ")}: ${said}`);
  };
  const set: SliceUnits["set"] = async (slice, properties, signal) => {
    const assignments = properties.filter(({ name }) => !notAssigned.has(name)).map(assignment);
    if (assignments.length > 0) await must(["set-property", "--runtime", slice, ...assignments], signal);
  };
  return {
    version: async (signal) => versionOf((await must(["--version"], signal)).stdout.replace(/^systemd /, "")),
    async start(slice, properties, signal) {
      const first = await must(["start", slice], signal, [0, notLoaded]);
      if (first.code === notLoaded) {
        // systemd remembers the file of a slice that was started over the bus, and that went with it.
        await must(["daemon-reload"], signal);
        await must(["start", slice], signal);
      }
      await set(slice, properties, signal);
      return true;
    },
    set,
    async stop(slice, signal) {
      await must(["stop", slice], signal, [0, notLoaded]);
      await run(["reset-failed", slice], signal);
      // Properties set by commands outlive a slice, and would be those of the next one of its name.
      await run(["revert", "--no-reload", slice], signal);
    },
  };
}

/** A property as systemctl's own: times in units, bits as a list.
 *  @see https://www.freedesktop.org/software/systemd/man/latest/systemd.resource-control.html */
export function assignment({ name, value }: UnitProperty): string {
  const isInfinite = value === 2n ** 64n - 1n;
  switch (name) {
    case "CPUQuotaPerSecUSec":
      return `CPUQuota=${isInfinite ? "" : `${Number(value) / 10_000}%`}`;
    case "CPUQuotaPeriodUSec":
      return `CPUQuotaPeriodSec=${String(value)}us`;
    default:
      if (value instanceof Uint8Array) return `${name}=${listed(value)}`;
      return `${name}=${isInfinite ? "infinity" : String(value)}`;
  }
}

function listed(bits: Uint8Array): string {
  const cpus = [...bits].flatMap((byte, at) =>
    [0, 1, 2, 3, 4, 5, 6, 7].filter((bit) => (byte >> bit) & 1).map((bit) => at * 8 + bit),
  );
  return cpus.join(",");
}
