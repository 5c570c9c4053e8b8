import { type CpuSet, formatCpus } from "../lib/cpu-set.ts";
import { createTargetRefusal } from "../host/target-refusal.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";
import { readCpuState, type SavedState } from "./state-file.ts";
import {
  type Assignments,
  type StaticPolicy,
  type StaticPolicyOptions,
  assignedCpus,
  createStaticPolicy,
  sharedPool,
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

/** Reads the CPU topology and the saved state for the CPU manager; does not change the target.
 *  @returns undefined for policy none. @throws TargetError in the kubelet's words if the target does not support the policy, or the
 *  saved state was written with another policy; unavailable. */
export async function openPolicy(
  settings: CpuManagerSettings,
  host: Pick<Host, "run" | "budget"> & { readonly fs: Pick<Host["fs"], "readFile"> },
  log: Logger,
  signal: AbortSignal,
): Promise<OpenedPolicy | undefined> {
  const { rootDir } = settings;
  const refusal = createTargetRefusal("CPUManager");
  if (settings.policy === "none") {
    const saved = await readCpuState(host.fs, rootDir, log, signal);
    if (saved) refusal.check(() => checkCpuPolicy(saved, "none"));
    return undefined;
  }
  const [saved, topology] = await Promise.all([
    readCpuState(host.fs, rootDir, log, signal),
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

/** Checks that a state was written with this policy. @throws Error in the kubelet's words. */
export function checkCpuPolicy({ policy, file }: SavedState, configured: string): void {
  if (policy === configured) return;
  throw new Error(
    `could not restore state from checkpoint: configured policy "${configured}" differs from state checkpoint policy "${policy}", please drain this node and delete the CPU manager checkpoint file "${file}" before restarting Kubelet`,
  );
}

/** Checks that a state fits the policy's CPUs. @returns its assignments. @throws Error in the kubelet's words.
 *  (kubelet, cm/cpumanager/policy_static.go) */
export function restoredAssignments(policy: StaticPolicy, saved: SavedState): Assignments {
  checkCpuPolicy(saved, "static");
  const { shared, assigned, file } = saved;
  const { reserved, options } = policy;
  const invalid = (problem: string) =>
    new Error(`${problem}: please drain this node and delete the CPU manager checkpoint file "${file}"`);
  if (shared.size === 0 && assigned.size === 0) return assigned;
  // With strict-cpu-reservation all other CPUs can be exclusive.
  if (shared.size === 0 && !options.strictReservation) throw invalid("default cpuset cannot be empty");
  const sharedText = formatCpus(shared);
  const both = reserved.intersection(shared);
  if (options.strictReservation && both.size > 0)
    throw invalid(
      `some of strictly reserved cpus: "${formatCpus(both)}" are present in defaultCpuSet: "${sharedText}"`,
    );
  if (!options.strictReservation && both.size < reserved.size)
    throw invalid(`not all reserved cpus: "${formatCpus(reserved)}" are present in defaultCpuSet: "${sharedText}"`);
  for (const [pod, containers] of assigned) {
    for (const [container, cpus] of containers) {
      if (!cpus.isDisjointFrom(shared))
        throw invalid(
          `pod: ${pod}, container: ${container} cpuset: "${formatCpus(cpus)}" overlaps with default cpuset "${sharedText}"`,
        );
    }
  }
  const [known, available] = [shared.union(assignedCpus(assigned)), sharedPool(policy, new Map())];
  if (known.symmetricDifference(available).size > 0)
    throw invalid(
      `current set of available CPUs "${formatCpus(available)}" doesn't match with CPUs in state "${formatCpus(known)}"`,
    );
  return assigned;
}
