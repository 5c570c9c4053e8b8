import type { Container, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import type { PodAllocator } from "../resource-manager.ts";
import type { NumaTopology } from "./numa.ts";
import { type MergedHint, type PolicySettings, mergeByPolicy } from "./policy.ts";

/** How a node aligns resources. */
export interface Alignment extends PolicySettings {
  /** KubeletConfiguration.topologyManagerScope: the containers whose resources come from the same NUMA nodes. */
  readonly scope: "container" | "pod";
  readonly numa: NumaTopology;
}

export interface AlignmentMeasures {
  /** The resources of a pod could not be aligned, or could not be allocated. */
  failed(): void;
  /** With single-numa-node: a container, or the whole pod, got its resources from one NUMA node. */
  aligned(scope: Alignment["scope"]): void;
  /** With single-numa-node: no NUMA node has the requested resources. */
  unaligned(scope: Alignment["scope"]): void;
}

interface AlignedAllocationDeps {
  readonly alignment: Alignment;
  readonly measures: AlignmentMeasures;
}

const notAligned: Rejection = {
  reason: "TopologyAffinityError",
  message: "Resources cannot be allocated with Topology locality",
};

/** Allocates a pod with the hints of all allocators, and commits the allocation. Resources of a rejected pod may stay allocated until they
 *  are released.
 *  @returns why the pod cannot be admitted. (kubelet, cm/topologymanager/scope_container.go, scope_pod.go) */
export async function allocateAligned(
  deps: AlignedAllocationDeps,
  allocators: readonly PodAllocator[],
  { spec: { initContainers = [], containers } }: Pod,
): Promise<Rejection | undefined> {
  const all = [...initContainers, ...containers];
  const refused =
    deps.alignment.scope === "pod"
      ? await allocateGroup(deps, allocators, { of: undefined, containers: all })
      : await allocateSeparately(deps, allocators, all);
  if (refused) {
    deps.measures.failed();
    return refused;
  }
  for (const allocator of allocators) await allocator.commit?.();
  return undefined;
}

async function allocateSeparately(
  deps: AlignedAllocationDeps,
  allocators: readonly PodAllocator[],
  containers: readonly Container[],
): Promise<Rejection | undefined> {
  for (const container of containers) {
    const refused = await allocateGroup(deps, allocators, { of: container, containers: [container] });
    if (refused) return refused;
  }
  return undefined;
}

/** Containers whose resources come from the same NUMA nodes. */
interface ContainerGroup {
  /** The container that the hints are for; undefined for the pod. */
  readonly of: Container | undefined;
  readonly containers: readonly Container[];
}

async function allocateGroup(
  { alignment, measures }: AlignedAllocationDeps,
  allocators: readonly PodAllocator[],
  { of, containers }: ContainerGroup,
): Promise<Rejection | undefined> {
  const guaranteed = alignment.policy === "single-numa-node";
  const hints = allocators.map((allocator) => allocator.hints(of));
  const { hint, admit }: MergedHint = mergeByPolicy(alignment, alignment.numa, hints);
  if (!admit) {
    if (guaranteed) measures.unaligned(alignment.scope);
    return notAligned;
  }
  for (const container of containers) {
    for (const allocator of allocators) {
      const refused = await allocator.allocate(container, hint);
      if (refused) return refused;
    }
  }
  if (guaranteed) measures.aligned(alignment.scope);
  return undefined;
}
