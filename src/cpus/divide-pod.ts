import type { CpuSet } from "../lib/cpu-set.ts";
import type { Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { wholePod } from "../pod/pinned-resources.ts";
import { type StaticPolicy, exclusiveCpuCount, takeByPolicy } from "./static-policy.ts";

/** Divides the CPUs of a pod with pod-level resources among its containers: some have CPUs of their own, the others share the rest. An init
 *  container can use what the containers after it have; what sidecars have stays theirs.
 *  @returns CPUs by container name, and those of the whole pod. @throws Error in the kubelet's words.
 *  (kubelet, cm/cpumanager/policy_static.go) */
export function dividePod(policy: StaticPolicy, pod: Pod, all: CpuSet): ReadonlyMap<string, CpuSet> {
  const { initContainers = [], containers } = pod.spec;
  const shares = new Map([[wholePod, all]]);
  let left = all;
  for (const container of [...initContainers, ...containers]) {
    const endsEarly = initContainers.includes(container) && !isSidecar(container);
    const count = exclusiveCpuCount(pod, container);
    if (count > 0) {
      const own = takeByPolicy(policy, left, count);
      shares.set(container.name, own);
      if (!endsEarly) left = left.difference(own);
    } else if (endsEarly) shares.set(container.name, left);
  }
  for (const { name } of [...initContainers, ...containers]) if (!shares.has(name)) shares.set(name, left);
  return shares;
}
