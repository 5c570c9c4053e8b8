import { messageOf } from "./lib/errors.ts";
import type { Runnable } from "./lib/runnables.ts";
import type { Container, ContainerStatus, Pod } from "./objects.ts";
import type { Rejection } from "./pipeline.ts";
import type { AllocatedPod } from "./roles.ts";
import type { TopologyHint, TopologyHints } from "./topology-hints.ts";

/** Additions of resource managers to a container. Paths on the host are the target's. */
export interface ContainerAdditions {
  readonly environment: ReadonlyMap<string, string>;
  readonly mounts: readonly { readonly containerPath: string; readonly hostPath: string; readonly readOnly: boolean }[];
  /** Permissions of device cgroups: a combination of `r`, `w` and `m`. */
  readonly devices: readonly {
    readonly containerPath: string;
    readonly hostPath: string;
    readonly permissions: string;
  }[];
  readonly annotations: Readonly<Record<string, string>>;
  /** Full names, such as `vendor.com/gpu=0`. */
  readonly cdiDevices: readonly string[];
  /** CPUs that the container may use, in cpuset format; undefined for all. */
  readonly cpus?: string;
  /** NUMA nodes whose memory the container may use, in cpuset format; undefined for all. */
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

/** Health of the resources that are allocated to a container, as in its status. */
export type ResourceStatuses = NonNullable<ContainerStatus["allocatedResourcesStatus"]>;

/** Source of a container's CPUs or memory: the free resources of the node, or the resources of its pod with pod-level resources. */
export type AssignmentSource = "node" | "pod";

/** Kind of a container's CPUs or memory: exclusive, taken from the node or from its pod, or shared with other containers of its pod. */
export type AssignmentKind = "node_exclusive" | "pod_exclusive" | "pod_shared";

/** Allocates the requests of one pod container by container, at its admission: init containers first, in their order. It remembers
 *  state for the pod's later containers, such as resources of init containers that they can reuse. */
export interface PodAllocator {
  /** Returns ways to satisfy the requests of a container, or of the pod as a whole. For allocated resources, returns the hints that fit
   *  them.
   *  @param container undefined for the pod. */
  hints(container: Container | undefined): TopologyHints;
  /** Allocates the requests of a container, from the hint's NUMA nodes first. A container keeps resources that it already has.
   *  @returns why the pod cannot be admitted; resources that its containers got before may stay until `release`. @throws the signal's
   *  reason. */
  allocate(container: Container, hint: TopologyHint): Promise<Rejection | undefined>;
  /** Allocates the requests of a whole pod with pod-level resources, and divides them among its containers. Allocators without this
   *  method allocate to each container. @returns as `allocate`. */
  allocatePod?(hint: TopologyHint): Promise<Rejection | undefined>;
  /** Records the pod's allocation, once all managers have allocated the requests of its containers. */
  commit?(): Promise<void>;
}

/** Manages one kind of resource of the node, such as devices of plugins, for its pods from admission to termination. Each node has a list of
 *  managers, created in kubelet/resource-managers.ts. */
export interface ResourceManager {
  /** Name for log lines. */
  readonly name: string;
  /** Begins the allocation of a pod's requests at its admission, container by container. After a restart the pod is admitted again and keeps
   *  its allocation.
   *  @param others the other pods that the node has admitted and that have not ended.
   *  @returns undefined for a pod that requests nothing of this manager. @throws unavailable; the signal's reason. */
  podAllocator?(
    pod: AllocatedPod,
    others: readonly AllocatedPod[],
    signal: AbortSignal,
  ): Promise<PodAllocator | undefined>;
  /** Allocates requests of the whole pod, after all allocations by container.
   *  @param others as `podAllocator`. @returns why the pod cannot be admitted. @throws as `podAllocator`. */
  allocate?(pod: AllocatedPod, others: readonly AllocatedPod[], signal: AbortSignal): Promise<Rejection | undefined>;
  /** Amounts of the manager's resources by resource name, against which the pod's requests are checked. Called after the pod's allocation. */
  allocatable(pod: Pod): Readonly<Record<string, string>>;
  /** Prepares the resources of a pod; called before its sandbox is created, each time. @throws with the kubelet's message if they cannot
   *  be prepared. */
  preparePod?(pod: AllocatedPod, signal: AbortSignal): Promise<void>;
  /** Undoes `preparePod` once the pod's containers have stopped and before its end is reported. Idempotent.
   *  @throws with the kubelet's message; the pod's termination is then retried. */
  unpreparePod?(uid: string, signal: AbortSignal): Promise<void>;
  /** Prepares the resources of a container; called before the container is created, each time.
   *  @returns undefined for a container without allocations of this manager. @throws with the kubelet's message if they cannot be
   *  prepared. */
  prepareContainer(pod: Pod, container: Container, signal: AbortSignal): Promise<ContainerAdditions | undefined>;
  /** Health of the resources of a container; empty if the health of none is known. */
  health?(pod: Pod, containerName: string): ResourceStatuses;
  /** Releases a pod's allocation once its containers have stopped and none will start. Idempotent. */
  release(uid: string): void;
  /** Background work of the manager, for as long as the node runs. */
  readonly runnables: readonly Runnable[];
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

/** Joins the additions of several managers; if two of them set the same variable, annotation, CPUs or NUMA nodes, the first takes
 *  precedence.
 *  @returns undefined without additions. */
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
