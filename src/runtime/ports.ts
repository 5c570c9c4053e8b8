import type { ContainerStatus } from "../gen/cri.ts";
import type { Pod, Resources, Service } from "../objects.ts";
import type { ProbeKind, SubPathMount } from "../pipeline.ts";
import type { AllocatedPod } from "../roles.ts";

// Ports for starting pods; other stages implement them.

/** Service tunnel from pods into the cluster: opened for a new sandbox's IPs, closed before the pod's sandboxes stop. Neither call fails. */
export interface PodServiceTunnel {
  openFor(uid: string, ips: readonly string[], signal: AbortSignal): Promise<void>;
  closeFor(uid: string, signal: AbortSignal): Promise<void>;
}

export interface ServiceLister {
  /** Services with a cluster IP; undefined until they have been listed once. */
  list(): readonly Service[] | undefined;
}

/** RuntimeClasses, with which pods select one of the runtime's handlers. */
export interface RuntimeClasses {
  /** The handler of the RuntimeClass of that name.
   *  @throws Error with the kubelet's text if it does not exist, or RuntimeClasses are not known yet. */
  handler(name: string, signal: AbortSignal): Promise<string>;
}

/** User and group IDs of the target for pods with their own user namespaces. */
export interface PodIds {
  /** The range of a pod: the same until the pod ends, across restarts of the node. @returns its first ID and its length.
   *  @throws Error with the kubelet's text if there is none. */
  rangeOf(pod: Pod, signal: AbortSignal): Promise<{ readonly first: number; readonly length: number }>;
}

/** The target's IPs, primary first: a pod's hostIPs. */
export interface HostAddresses {
  hostIPs(): readonly string[];
}

/** Protects container starts from concurrent updates of the pod's volumes. */
export interface StableFiles {
  /** Runs work while no file of the pod's configMap, secret, projected and downwardAPI volumes is replaced: the runtime may
   *  mount them by path. Updates wait until the work is done. */
  withStableFiles<T>(uid: string, work: () => Promise<T>): Promise<T>;
}

export interface SubPathMounts {
  /** Bind-mounts subPaths of a pod's mounted volumes where a runtime can mount them safely, regardless of links that a container creates.
   *  Missing directories are created. Idempotent: a restarted container sees the current files.
   *  @returns absolute paths on the target, by index. @throws an error with the kubelet's text, without the contents of links on the target. */
  bindSubPaths(
    pod: Pod,
    containerName: string,
    parts: readonly SubPathMount[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, string>>;
}

/** Results of containers' startup and liveness probes. */
export interface ProbeResults {
  /** True once the container has passed its startup probe; undefined without one. */
  started(uid: string, containerName: string, containerId: string): boolean | undefined;
  /** The failed probe for which the container must be killed. */
  failedProbe(uid: string, containerName: string, containerId: string): FatalProbeKind | undefined;
}

export type FatalProbeKind = Exclude<ProbeKind, "readiness">;

/** Actuated CPU and memory of running containers, which may lag behind the allocation. Pod-level limits are the default of
 *  container limits. */
export interface ActuatedResources {
  /** @param pod the allocated pod. @param status of one of its running containers. */
  containerResources(pod: AllocatedPod, status: ContainerStatus): Resources;
  /** Actuated pod-level resources; undefined if it has none. */
  podResources(pod: AllocatedPod): Resources | undefined;
  /** Records resources that the runtime has applied to a container. */
  setContainerResources(uid: string, containerId: string, resources: Resources): Promise<void>;
  setPodResources(uid: string, resources: Resources): Promise<void>;
}
