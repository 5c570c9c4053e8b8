import { type CpuSet, formatCpus } from "../lib/cpu-set.ts";
import { createTargetRefusal } from "../host/target-refusal.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { checkPolicy, restoredAssignments } from "./check-state.ts";
import { readState } from "./state-file.ts";
import {
  type Assignments,
  type StaticPolicy,
  type StaticPolicyOptions,
  assignedCpus,
  createStaticPolicy,
} from "./static-policy.ts";
import { readTopology } from "./topology.ts";

export interface CpuManagerSettings {
  readonly rootDir: string;
  /** KubeletConfiguration.cpuManagerPolicy */
  readonly policy: "none" | "static";
  readonly options: StaticPolicyOptions;
  /** reservedSystemCPUs; empty if an amount of CPU is reserved instead. */
  readonly reserved: CpuSet;
  /** CPU time in kubeReserved and systemReserved, millicores. */
  readonly reservedMilli: number;
}

/** The static policy on a target, with the assignments from before a restart. */
export interface OpenedPolicy {
  readonly policy: StaticPolicy;
  readonly assigned: Assignments;
}

/** Reads what the CPU manager needs from the target, which it does not change.
 *  @returns undefined for policy none. @throws TargetError in the kubelet's words if the policy cannot be used on the target, or its state
 *  there is of another policy; unavailable. */
export async function openPolicy(
  settings: CpuManagerSettings,
  host: Pick<Host, "run" | "budget"> & { readonly fs: Pick<Host["fs"], "readFile"> },
  log: Logger,
  signal: AbortSignal,
): Promise<OpenedPolicy | undefined> {
  const { rootDir } = settings;
  const refusal = createTargetRefusal("CPUManager");
  if (settings.policy === "none") {
    const saved = await readState(host.fs, rootDir, log, signal);
    if (saved) refusal.check(() => checkPolicy(saved, "none"));
    return undefined;
  }
  const [saved, topology] = await Promise.all([
    readState(host.fs, rootDir, log, signal),
    refusal.read(readTopology(host, signal)),
  ]);
  const policy = refusal.check(() => createStaticPolicy({ ...settings, topology }));
  return { policy, assigned: saved ? refusal.check(() => restoredAssignments(policy, saved)) : new Map() };
}

/** Describes a target's CPUs in a sentence. @param opened undefined for policy none. */
export function describeCpus(opened: OpenedPolicy | undefined): string {
  if (!opened) return "containers share all CPUs";
  const { policy, assigned } = opened;
  const [all, reserved, exclusive] = [policy.topology.ids, policy.reserved, assignedCpus(assigned)].map(formatCpus);
  return `CPUs ${all}, reserved ${reserved}, exclusive ${exclusive || "none"}`;
}
