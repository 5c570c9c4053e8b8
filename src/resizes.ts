import type { ContainerStatus } from "./gen/cri.ts";
import type { Resources } from "./objects.ts";
import type { RuntimePod } from "./pipeline.ts";
import type { AskedPod, GivenPod } from "./roles.ts";

// Vocabulary of in-place resizes, as pipeline.ts is of the rest.

/** CPU and memory in force for running containers: they may lag behind the allocation. Limits that a pod has for its
 *  containers together stand in for theirs. */
export interface ResourcesInForce {
  /** @param pod as it has been given its resources. @param status of one of its containers, which runs. */
  ofContainer(pod: GivenPod, status: ContainerStatus): Resources;
  /** Resources in force for the pod as a whole; undefined where it has none of its own. */
  ofPod(pod: GivenPod): Resources | undefined;
  /** The runtime has taken them over. */
  setContainer(uid: string, containerId: string, resources: Resources): Promise<void>;
  setPod(uid: string, resources: Resources): Promise<void>;
}

/** Changes of the resources of pods that are on the node.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export interface Resizes {
  /** The pod with what it has been given in place of what it asks for. */
  allocated(pod: AskedPod): GivenPod;
  /** The same with what is in force for those of its containers that run. */
  inForce(pod: GivenPod, observed: RuntimePod): GivenPod;
  /** Finds out from an observation whether the pod's resize is done. @param pod as it has been given its resources. */
  observe(pod: GivenPod, observed: RuntimePod): void;
  /** The pod's allocation could not be actuated. @param pod as above. */
  failed(pod: GivenPod, message: string): void;
}

/** Progress of a pod's resize, as its conditions show it. */
export interface ResizeState {
  /** The resources asked for do not fit yet, or cannot be had in place at all. */
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
    /** Generation of the spec that asked for it. */
    readonly generation: number;
  };
}

/** A resize that is not done, and the reason. */
export type PendingResize = NonNullable<ResizeState["pending"]>;

/** Numbers of resizes by their progress. */
export type ResizeCounts = Readonly<Record<"deferred" | "infeasible" | "inProgress", number>>;

/** Reason for which pending resizes are weighed again. */
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
  /** The same, with no less than what is still in force: so much other pods have to leave it. */
  held(pod: AskedPod): GivenPod;
  /** A pod has come, before it is admitted: what it was given before counts, not what it asks for now. */
  take(pod: AskedPod): void;
  /** A pod that is on the node may ask for something else than before, and than it has been given. @returns whether it does. */
  ask(pod: AskedPod): boolean;
  /** Decides what is pending. @param active the pods that hold resources now: what is decided may end some. @param trigger why now.
   *  @returns the UIDs of pods that have been given something else, or have something else to show. */
  decide(active: () => readonly AskedPod[], trigger: ResizeTrigger, signal: AbortSignal): Promise<readonly string[]>;
}
