import { formatCpus } from "../lib/cpu-set.ts";
import type { SavedState } from "./state-file.ts";
import { type Assignments, type StaticPolicy, assignedCpus, sharedPool } from "./static-policy.ts";

/** Checks that a state was written with this policy. @throws Error in the kubelet's words. */
export function checkPolicy({ policy, file }: SavedState, configured: string): void {
  if (policy === configured) return;
  throw new Error(
    `could not restore state from checkpoint: configured policy "${configured}" differs from state checkpoint policy "${policy}", please drain this node and delete the CPU manager checkpoint file "${file}" before restarting Kubelet`,
  );
}

/** Checks that a state fits the policy's CPUs. @returns its assignments. @throws Error in the kubelet's words.
 *  (kubelet, cm/cpumanager/policy_static.go) */
export function restoredAssignments(policy: StaticPolicy, saved: SavedState): Assignments {
  checkPolicy(saved, "static");
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
