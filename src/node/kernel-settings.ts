import type { Host } from "../seams/host.ts";
import { messageOf } from "../lib/errors.ts";
import { TargetError } from "../seams/provider.ts";

/** Kernel settings that a kubelet requires, by path below /proc/sys: allocations do not fail; when memory runs out, processes are
 *  killed, and the kernel does not panic; a kernel error restarts the machine; root has enough key quota for many containers.
 *  @see https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ (protectKernelDefaults) */
const required = {
  "vm/overcommit_memory": 1,
  "vm/panic_on_oom": 0,
  "kernel/panic": 10,
  "kernel/panic_on_oops": 1,
  "kernel/keys/root_maxkeys": 1_000_000,
  "kernel/keys/root_maxbytes": 25_000_000,
} as const;

/** Checks the target's kernel settings, or sets those that differ.
 *  @throws TargetError in the kubelet's words; the signal's reason. */
export async function applyKernelSettings(
  { fs }: Pick<Host, "fs">,
  action: "check" | "set",
  signal: AbortSignal,
): Promise<void> {
  const checks = Object.entries(required).map(async ([flag, expected]) => {
    const path = `/proc/sys/${flag}`;
    try {
      const actual = (await fs.readFile(path, { signal })).toString().trim();
      if (Number(actual) === expected) return [];
      if (action === "check")
        return [`invalid kernel flag: ${flag}, expected value: ${expected}, actual value: ${actual}`];
      await fs.apply([{ kind: "write", path, data: `${expected}` }], signal);
      return [];
    } catch (error) {
      signal.throwIfAborted();
      return [`cannot ${action === "check" ? "read" : "set"} ${path}: ${messageOf(error)}`];
    }
  });
  const problems = (await Promise.all(checks)).flat();
  if (problems.length === 0) return;
  const text = problems.length > 1 ? `[${problems.join(", ")}]` : (problems[0] ?? "");
  throw new TargetError("KernelSettings", "failed_precondition", text);
}
