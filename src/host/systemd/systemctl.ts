import { CodedError, hasCode } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";
import { versionOf } from "./bus-slices.ts";
import type { SliceUnits, UnitProperty } from "./slices.ts";
import { type Option, command } from "../../seams/command.ts";

/** Exit codes of systemctl; denials by polkit can be recognized by the text only. @see
 *  https://www.freedesktop.org/software/systemd/man/latest/systemctl.html */
const [denied, notLoaded] = [4, 5];
/** Properties that are set automatically, or only at start. */
const notAssigned = new Set(["Description", "Wants", "DefaultDependencies"]);

/** A call of systemctl. Slice names contain configuration values and pod UIDs, so they are passed as operands. */
interface Call {
  readonly verb: readonly string[];
  readonly options?: readonly Option[];
  readonly operands?: readonly string[];
}

const setProperty = (operands: readonly string[]): Call => ({
  verb: ["set-property"],
  options: ["--runtime"],
  operands,
});

/** Manages slices with systemctl, for a target whose bus is unreachable. A slice is started by name, and gets its properties
 *  afterwards. */
export function commandSlices(host: Pick<Host, "run">): SliceUnits {
  const run = async ({ verb, options = [], operands = [] }: Call, signal: AbortSignal) => {
    try {
      return await host.run(command(["systemctl", "--no-ask-password", ...verb], options, operands), { signal });
    } catch (error) {
      if (!hasCode(error, "not_found")) throw error;
      throw new CodedError("unavailable", "the target has neither a system bus nor systemctl", { cause: error });
    }
  };
  const must = async (call: Call, signal: AbortSignal, passes: readonly number[] = [0]) => {
    const { code, stdout, stderr } = await run(call, signal);
    if (passes.includes(code)) return { code, stdout };
    const output = stderr.trim().split("\n")[0] ?? "";
    const mayNot = code === denied || /access denied|authentication required|permission denied/i.test(stderr);
    throw new CodedError(
      mayNot ? "permission_denied" : "unavailable",
      `systemctl ${[...call.verb, ...(call.options ?? []), ...(call.operands ?? [])].join(" ")}: ${output}`,
    );
  };
  const set: SliceUnits["set"] = async (slice, properties, signal) => {
    const assignments = properties.filter(({ name }) => !notAssigned.has(name)).map(assignment);
    if (assignments.length > 0) await must(setProperty([slice, ...assignments]), signal);
  };
  return {
    version: async (signal) =>
      versionOf((await must({ verb: [], options: ["--version"] }, signal)).stdout.replace(/^systemd /, "")),
    async start(slice, properties, signal) {
      const first = await must({ verb: ["start"], operands: [slice] }, signal, [0, notLoaded]);
      if (first.code === notLoaded) {
        // systemd still remembers the removed unit file of a transient slice that was started over the bus.
        await must({ verb: ["daemon-reload"] }, signal);
        await must({ verb: ["start"], operands: [slice] }, signal);
      }
      await set(slice, properties, signal);
      return true;
    },
    set,
    async stop(slice, signal) {
      await must({ verb: ["stop"], operands: [slice] }, signal, [0, notLoaded]);
      await run({ verb: ["reset-failed"], operands: [slice] }, signal);
      // Properties set by systemctl outlive a slice, and would apply to the next one of the same name.
      await run({ verb: ["revert"], options: ["--no-reload"], operands: [slice] }, signal);
    },
  };
}

/** Formats a property for systemctl: times with units, bit masks as lists.
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
