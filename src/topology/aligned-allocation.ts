import type { Container, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import { hasPodLevelResources } from "../pod/resources.ts";
import type { PodAllocator } from "../resource-manager.ts";
import type { NumaTopology } from "./numa.ts";
import { type MergedHint, type PolicySettings, mergeByPolicy } from "./policy.ts";

/** How a node aligns resources. */
export interface Alignment extends PolicySettings {
  /** KubeletConfiguration.topologyManagerScope: the containers whose resources come from the same NUMA nodes. */
  readonly scope: "container" | "pod";
  /** Feature gate PodLevelResourceManagers: with scope pod, pods with pod-level resources get CPUs and memory as a whole. */
  readonly podLevel: boolean;
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

function notAligned({ scope }: Alignment, isPodLevel: boolean): Rejection {
  const how = scope === "pod" ? "under pod-scope topology manager" : "with a container-level topology manager";
  const message = isPodLevel
    ? `Pod Scope pod with pod-level resources failed admission ${how}`
    : "Resources cannot be allocated with Topology locality";
  return { reason: "TopologyAffinityError", message };
}

/** Allocates a pod with the hints of all allocators. Resources of a rejected pod may stay allocated until they are released.
 *  @returns why the pod cannot be admitted. (kubelet, cm/topologymanager/scope_container.go, scope_pod.go) */
export async function allocateAligned(
  deps: AlignedAllocationDeps,
  allocators: readonly PodAllocator[],
  { spec }: Pod,
): Promise<Rejection | undefined> {
  const { initContainers = [], containers } = spec;
  const all = [...initContainers, ...containers];
  const isPodLevel = deps.alignment.podLevel && hasPodLevelResources(spec);
  const refused =
    deps.alignment.scope === "pod"
      ? await allocateGroup(deps, allocators, { of: undefined, containers: all, isPodLevel })
      : await allocateSeparately(deps, allocators, { containers: all, isPodLevel });
  if (refused) deps.measures.failed();
  return refused;
}

async function allocateSeparately(
  deps: AlignedAllocationDeps,
  allocators: readonly PodAllocator[],
  { containers, isPodLevel }: Pick<ContainerGroup, "containers" | "isPodLevel">,
): Promise<Rejection | undefined> {
  for (const container of containers) {
    const refused = await allocateGroup(deps, allocators, { of: container, containers: [container], isPodLevel });
    if (refused) return refused;
  }
  return undefined;
}

/** Containers whose resources come from the same NUMA nodes. */
interface ContainerGroup {
  /** The container that the hints are for; undefined for the pod. */
  readonly of: Container | undefined;
  readonly containers: readonly Container[];
  /** True if the pod has pod-level resources, from which its containers get CPUs and memory. */
  readonly isPodLevel: boolean;
}

async function allocateGroup(
  { alignment, measures }: AlignedAllocationDeps,
  allocators: readonly PodAllocator[],
  { of, containers, isPodLevel }: ContainerGroup,
): Promise<Rejection | undefined> {
  const guaranteed = alignment.policy === "single-numa-node";
  const hints = allocators.map((allocator) => allocator.hints(of));
  const { hint, admit }: MergedHint = mergeByPolicy(alignment, alignment.numa, hints);
  if (!admit) {
    if (guaranteed) measures.unaligned(alignment.scope);
    return notAligned(alignment, isPodLevel);
  }
  const whole = isPodLevel && of === undefined ? allocators.filter((one) => one.allocatePod !== undefined) : [];
  for (const allocator of whole) {
    const refused = await allocator.allocatePod?.(hint);
    if (refused) return refused;
  }
  for (const container of containers) {
    for (const allocator of allocators.filter((one) => !whole.includes(one))) {
      const refused = await allocator.allocate(container, hint);
      if (refused) return refused;
    }
  }
  if (guaranteed) measures.aligned(alignment.scope);
  return undefined;
}
