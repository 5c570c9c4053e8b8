import type { ContainerStatus } from "./gen/cri.ts";
import type { Resources } from "./objects.ts";
import type { RuntimePod } from "./pipeline.ts";
import type { DesiredPod, AllocatedPod } from "./roles.ts";

// Values and ports for in-place resizes, like pipeline.ts for everything else.

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

/** In-place resizes of pods on the node.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export interface Resizes {
  /** The pod with its allocated resources in place of its requested ones. */
  allocatedPod(pod: DesiredPod): AllocatedPod;
  /** The pod with the actuated resources of its running containers. */
  actuatedPod(pod: AllocatedPod, observed: RuntimePod): AllocatedPod;
  /** Checks by an observation whether the pod's resize is complete. @param pod the allocated pod. */
  checkProgress(pod: AllocatedPod, observed: RuntimePod): void;
  /** Records that the pod's allocation could not be actuated. @param pod the allocated pod. */
  actuationFailed(pod: AllocatedPod, message: string): void;
}

/** Progress of a pod's resize, as shown by its conditions. */
export interface ResizeState {
  /** The requested resources do not fit yet, or cannot be changed in place at all. */
  readonly pending?: {
    readonly reason: "Deferred" | "Infeasible";
    readonly message: string;
    readonly generation: number;
    /** Milliseconds since the epoch. */
    readonly since: number;
  };
  /** The allocation is being actuated. */
  readonly inProgress?: {
    readonly error?: string;
    /** Generation of the spec that requested it. */
    readonly generation: number;
  };
}

/** A resize that has not been allocated, and the reason. */
export type PendingResize = NonNullable<ResizeState["pending"]>;

/** Numbers of resizes by progress. */
export type ResizeCounts = Readonly<Record<"deferred" | "infeasible" | "inProgress", number>>;

/** Reason for retrying pending resizes. */
export type ResizeTrigger =
  | "pod_updated"
  | "pod_resized"
  | "pods_added"
  | "pods_removed"
  | "pod_terminated"
  | "periodic_retry";

/** Decides on resizes, one pod at a time. */
export interface ResizeDecider {
  allocatedPod(pod: DesiredPod): AllocatedPod;
  /** The allocated pod, with resources no lower than the actuated ones, which other pods cannot use yet. */
  effectivePod(pod: DesiredPod): AllocatedPod;
  /** Restores or makes the allocation of a pod that is about to be admitted: a previous allocation takes precedence over the spec. */
  addPod(pod: DesiredPod): void;
  /** Records the resources that a running pod requests. @returns true if they have changed and differ from its allocation. */
  recordRequest(pod: DesiredPod): boolean;
  /** Retries pending resizes. @param active the pods that hold resources now: a decision may terminate some. @param trigger for metrics.
   *  @returns the UIDs of pods whose allocation or resize status has changed. */
  retryPending(
    active: () => readonly DesiredPod[],
    trigger: ResizeTrigger,
    signal: AbortSignal,
  ): Promise<readonly string[]>;
}
