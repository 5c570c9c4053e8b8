import type { Clock } from "../lib/clock.ts";
import { timed } from "../lib/timed.ts";
import type { Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import type { PodAllocator, ResourceManager } from "../resource-manager.ts";
import { unaligned } from "../topology-hints.ts";
import { type Alignment, type AlignmentMeasures, allocateAligned } from "./aligned-allocation.ts";

/** Records admissions. */
export interface TopologyMeasures extends AlignmentMeasures {
  /** The node aligns resources: the counters of alignment exist from then on. */
  enabled(): void;
  /** Allocation of a pod's resources begins. */
  requested(): void;
  /** The allocation has ended, successfully or not. */
  ended(ms: number): void;
}

export interface TopologyManagerDeps {
  /** Undefined for policy none. */
  readonly alignment: Alignment | undefined;
  /** In the order in which they allocate. */
  readonly managers: readonly Pick<ResourceManager, "allocate" | "podAllocator">[];
  readonly measures: TopologyMeasures;
  readonly clock: Clock;
}

/** Has the resource managers allocate pods at their admission. */
export type TopologyManager = Required<Pick<ResourceManager, "allocate">>;

/** Topology manager: has the resource managers allocate resources from the same NUMA nodes according to the policy. With policy none,
 *  each manager allocates independently. The sync loop releases the allocations of a rejected pod.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/ */
export function createTopologyManager({ alignment, managers, measures, clock }: TopologyManagerDeps): TopologyManager {
  if (alignment) measures.enabled();
  const allocate: TopologyManager["allocate"] = async (pod, others, signal) => {
    const begun = await Promise.all(managers.map(async (manager) => manager.podAllocator?.(pod, others, signal)));
    const allocators = begun.filter((one) => one !== undefined);
    const refused = alignment
      ? await allocateAligned({ alignment, measures }, allocators, pod)
      : await allocateContainers(allocators, pod);
    if (refused) return refused;
    for (const allocator of allocators) await allocator.commit?.();
    for (const manager of managers) {
      const refusedPod = await manager.allocate?.(pod, others, signal);
      if (refusedPod) return refusedPod;
    }
    return undefined;
  };
  return {
    allocate(pod, others, signal) {
      measures.requested();
      return timed(clock, () => allocate(pod, others, signal), measures.ended);
    },
  };
}

/** Allocates each container's requests from any NUMA nodes. @returns why the pod cannot be admitted. @throws as the allocators do.
 *  (kubelet, cm/topologymanager/scope_none.go) */
async function allocateContainers(
  allocators: readonly Pick<PodAllocator, "allocate">[],
  { spec: { initContainers = [], containers } }: Pod,
): Promise<Rejection | undefined> {
  for (const container of [...initContainers, ...containers]) {
    for (const allocator of allocators) {
      const refused = await allocator.allocate(container, unaligned);
      if (refused) return refused;
    }
  }
  return undefined;
}
