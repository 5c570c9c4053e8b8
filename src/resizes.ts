import type { ContainerStatus } from "./gen/cri.ts";
import type { Resources } from "./objects.ts";
import type { RuntimePod } from "./pipeline.ts";
import type { AskedPod, GivenPod } from "./roles.ts";

// Values and ports for in-place resizes, like pipeline.ts for everything else.

/** Actuated CPU and memory of running containers, which may lag behind the allocation. Pod-level limits are the default of
 *  container limits. */
export interface ResourcesInForce {
  /** @param pod the allocated pod. @param status of one of its running containers. */
  ofContainer(pod: GivenPod, status: ContainerStatus): Resources;
  /** Actuated pod-level resources; undefined if it has none. */
  ofPod(pod: GivenPod): Resources | undefined;
  /** Records resources that the runtime has applied to a container. */
  setContainer(uid: string, containerId: string, resources: Resources): Promise<void>;
  setPod(uid: string, resources: Resources): Promise<void>;
}

/** In-place resizes of pods on the node.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export interface Resizes {
  /** The pod with its allocated resources in place of its requested ones. */
  allocated(pod: AskedPod): GivenPod;
  /** The pod with the actuated resources of its running containers. */
  inForce(pod: GivenPod, observed: RuntimePod): GivenPod;
  /** Checks by an observation whether the pod's resize is complete. @param pod the allocated pod. */
  observe(pod: GivenPod, observed: RuntimePod): void;
  /** Records that the pod's allocation could not be actuated. @param pod the allocated pod. */
  failed(pod: GivenPod, message: string): void;
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
  allocated(pod: AskedPod): GivenPod;
  /** The allocated pod, with resources no lower than the actuated ones, which other pods cannot use yet. */
  held(pod: AskedPod): GivenPod;
  /** Restores or makes the allocation of a pod that is about to be admitted: a previous allocation takes precedence over the spec. */
  take(pod: AskedPod): void;
  /** Records the resources that a running pod requests. @returns true if they have changed and differ from its allocation. */
  ask(pod: AskedPod): boolean;
  /** Retries pending resizes. @param active the pods that hold resources now: a decision may terminate some. @param trigger for metrics.
   *  @returns the UIDs of pods whose allocation or resize status has changed. */
  decide(active: () => readonly AskedPod[], trigger: ResizeTrigger, signal: AbortSignal): Promise<readonly string[]>;
}
