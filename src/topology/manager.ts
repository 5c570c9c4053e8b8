import type { Clock } from "../lib/clock.ts";
import { timed } from "../lib/timed.ts";
import type { Rejection } from "../pipeline.ts";
import type { ResourceManager } from "../resource-manager.ts";
import { type Alignment, type AlignmentMeasures, allocateAligned } from "./aligned-allocation.ts";

/** Records admissions. */
export interface TopologyMeasures extends AlignmentMeasures {
  /** The node aligns resources, so that counts of aligned ones exist. */
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
export type TopologyManager = Pick<ResourceManager, "allocate">;

/** Topology manager: has the resource managers allocate resources from the same NUMA nodes according to the policy. With policy none, each
 *  manager allocates independently. The sync loop releases the allocations of a rejected pod.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/ */
export function createTopologyManager({ alignment, managers, measures, clock }: TopologyManagerDeps): TopologyManager {
  if (alignment) measures.enabled();
  const allocate: TopologyManager["allocate"] = async (pod, others, signal) => {
    if (!alignment) return allocateEach(managers, pod, others, signal);
    const allocators = await Promise.all(managers.map(async (manager) => manager.podAllocator?.(pod, others, signal)));
    const refused = await allocateAligned(
      { alignment, measures },
      allocators.filter((one) => one !== undefined),
      pod,
    );
    const unaware = managers.filter((manager) => manager.podAllocator === undefined);
    return refused ?? allocateEach(unaware, pod, others, signal);
  };
  return {
    allocate(pod, others, signal) {
      measures.requested();
      return timed(clock, () => allocate(pod, others, signal), measures.ended);
    },
  };
}

/** Has each manager allocate the pod's requests, until one of them rejects the pod. */
async function allocateEach(
  managers: readonly Pick<ResourceManager, "allocate">[],
  ...request: Parameters<ResourceManager["allocate"]>
): Promise<Rejection | undefined> {
  for (const manager of managers) {
    const refused = await manager.allocate(...request);
    if (refused) return refused;
  }
  return undefined;
}
