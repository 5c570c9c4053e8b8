import { messageOf } from "./lib/errors.ts";
import type { Service } from "./lib/service-group.ts";
import type { Container, ContainerStatus, Pod } from "./objects.ts";
import type { Rejection } from "./pipeline.ts";
import type { AllocatedPod } from "./roles.ts";
import { type TopologyHint, type TopologyHints, unaligned } from "./topology-hints.ts";

/** What resource managers add to a container. Paths on the host are the target's. */
export interface ContainerAdditions {
  readonly environment: ReadonlyMap<string, string>;
  readonly mounts: readonly { readonly containerPath: string; readonly hostPath: string; readonly readOnly: boolean }[];
  /** With the permissions of cgroups: some of `r`, `w` and `m`. */
  readonly devices: readonly {
    readonly containerPath: string;
    readonly hostPath: string;
    readonly permissions: string;
  }[];
  readonly annotations: Readonly<Record<string, string>>;
  /** Full names, such as `vendor.com/gpu=0`. */
  readonly cdiDevices: readonly string[];
  /** CPUs that the container may use, in cpuset format; undefined: all. */
  readonly cpus?: string;
  /** NUMA nodes whose memory the container may use, in cpuset format; undefined: all. */
  readonly mems?: string;
}

/** Additions that change nothing. */
export const noAdditions: ContainerAdditions = {
  environment: new Map(),
  mounts: [],
  devices: [],
  annotations: {},
  cdiDevices: [],
};

/** Resources allocated to a container and their health, as in its status. */
export type ResourceStatuses = NonNullable<ContainerStatus["allocatedResourcesStatus"]>;

/** Allocates what one pod requests container by container, at its admission: init containers first, in their order. It keeps what matters
 *  to the pod's later containers, such as resources of init containers, which those can reuse. */
export interface PodAllocator {
  /** Ways to satisfy the requests of a container, or of the pod as a whole. For what is allocated already, the hints that fit it.
   *  @param container undefined: the pod. */
  hints(container: Container | undefined): TopologyHints;
  /** Allocates what a container requests, from the hint's NUMA nodes as far as they suffice. A container keeps what it has.
   *  @returns why the pod cannot be admitted; what its containers got so far may stay until `release`. @throws the signal's reason. */
  allocate(container: Container, hint: TopologyHint): Promise<Rejection | undefined>;
  /** Records the pod's allocation, once all managers have allocated what its containers request. */
  commit?(): Promise<void>;
}

/** Manages one kind of resource of the node, such as devices of plugins, for its pods from admission to termination. Each node has a list of
 *  managers, created in kubelet/resource-managers.ts. */
export interface ResourceManager {
  /** Name for log lines. */
  readonly name: string;
  /** Allocates what a pod requests, at its admission. After a restart the pod is admitted again and keeps its allocation.
   *  @param others the other pods that the node has admitted and that have not ended.
   *  @returns why the pod cannot be admitted. @throws unavailable; the signal's reason. */
  allocate(pod: AllocatedPod, others: readonly AllocatedPod[], signal: AbortSignal): Promise<Rejection | undefined>;
  /** Begins the same allocation container by container, for a topology manager, which has several managers allocate from the same NUMA nodes.
   *  A manager whose resources do not belong to NUMA nodes leaves it out.
   *  @returns undefined for a pod that requests nothing of this manager. @throws unavailable; the signal's reason. */
  podAllocator?(
    pod: AllocatedPod,
    others: readonly AllocatedPod[],
    signal: AbortSignal,
  ): Promise<PodAllocator | undefined>;
  /** Amounts of the manager's resources, by resource name, with which the pod's requests are compared. Called after the pod's
   *  allocation. */
  allocatable(pod: Pod): Readonly<Record<string, string>>;
  /** Prepares what a pod was allocated; called before its sandbox is created, each time. @throws with the kubelet's message if it cannot
   *  be prepared. */
  preparePod?(pod: AllocatedPod, signal: AbortSignal): Promise<void>;
  /** Undoes `preparePod`. The pod's containers have stopped, and its end has not been reported. Idempotent.
   *  @throws with the kubelet's message; the pod's termination is then retried. */
  unpreparePod?(uid: string, signal: AbortSignal): Promise<void>;
  /** Prepares what a container was allocated; called before the container is created, each time.
   *  @returns undefined for a container without allocations of this manager. @throws with the kubelet's message if it cannot be prepared. */
  prepareContainer(pod: Pod, container: Container, signal: AbortSignal): Promise<ContainerAdditions | undefined>;
  /** Health of what a container was allocated; empty if it has nothing whose health is known. */
  health?(pod: Pod, containerName: string): ResourceStatuses;
  /** Releases a pod's allocation. Its containers have stopped, and none will start. Idempotent. */
  release(uid: string): void;
  /** Background work of the manager, for as long as the node runs. */
  readonly services: readonly Service[];
}

/** Allocates a whole pod from any NUMA nodes. @returns why the pod cannot be admitted. @throws as the allocator does. */
export async function allocateContainers(
  allocator: Pick<PodAllocator, "allocate" | "commit">,
  { spec: { initContainers = [], containers } }: Pod,
): Promise<Rejection | undefined> {
  for (const container of [...initContainers, ...containers]) {
    const refused = await allocator.allocate(container, unaligned);
    if (refused) return refused;
  }
  await allocator.commit?.();
  return undefined;
}

/** Rejects a pod whose allocation failed, in the kubelet's words. (kubelet, cm/admission/errors.go) */
export function unexpectedAdmission(error: unknown): Rejection {
  return {
    reason: "UnexpectedAdmissionError",
    message: `Allocate failed due to ${messageOf(error)}, which is unexpected`,
  };
}

/** Has each manager prepare a container, one after the other. @returns their additions, merged. @throws as the managers do. */
export async function prepareContainer(
  managers: readonly Pick<ResourceManager, "prepareContainer">[],
  pod: Pod,
  container: Container,
  signal: AbortSignal,
): Promise<ContainerAdditions | undefined> {
  const additions: (ContainerAdditions | undefined)[] = [];
  for (const manager of managers) additions.push(await manager.prepareContainer(pod, container, signal));
  return joinAdditions(additions);
}

/** Joins the additions of several managers; where two name the same variable or annotation, CPUs or NUMA nodes, the first counts.
 *  @returns undefined without any. */
export function joinAdditions(additions: readonly (ContainerAdditions | undefined)[]): ContainerAdditions | undefined {
  const all = additions.filter((one) => one !== undefined);
  if (all.length < 2) return all[0];
  const cpus = all.find((one) => one.cpus !== undefined)?.cpus;
  const mems = all.find((one) => one.mems !== undefined)?.mems;
  return {
    environment: new Map(all.toReversed().flatMap(({ environment }) => [...environment])),
    mounts: all.flatMap(({ mounts }) => mounts),
    devices: all.flatMap(({ devices }) => devices),
    annotations: Object.fromEntries(all.toReversed().flatMap(({ annotations }) => Object.entries(annotations))),
    cdiDevices: [...new Set(all.flatMap(({ cdiDevices }) => cdiDevices))],
    ...(cpus !== undefined && { cpus }),
    ...(mems !== undefined && { mems }),
  };
}
