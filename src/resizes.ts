import type { ContainerStatus } from "./gen/cri.ts";
import type { Pod, PodCondition, Resources } from "./objects.ts";
import type { RuntimePod } from "./pipeline.ts";

// What stages say to each other of changes of the resources of pods that run: part of the vocabulary, as pipeline.ts is.

/** What of CPU and memory is in force for what runs: it may not yet be what the pod has been given. Limits that a pod has for its
 *  containers together stand in for theirs. */
export interface ResourcesInForce {
  /** @param pod as it has been given its resources. @param status of one of its containers, which runs. */
  ofContainer(pod: Pod, status: ContainerStatus): Resources;
  /** Of the pod as a whole; undefined where it has none of its own. */
  ofPod(pod: Pod): Resources | undefined;
  /** The runtime has taken them over. */
  setContainer(uid: string, containerId: string, resources: Resources): Promise<void>;
  setPod(uid: string, resources: Resources): Promise<void>;
}

/** Changes of the resources of pods that are on the node.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export interface Resizes {
  /** The pod with what it has been given in place of what it asks for. */
  allocated(pod: Pod): Pod;
  /** The same with what is in force for those of its containers that run. */
  inForce(pod: Pod, observed: RuntimePod): Pod;
  /** What is shown of a pod's resize. */
  conditions(uid: string): readonly PodCondition[];
  /** What was seen of a pod tells whether its resize is done. @param pod as it has been given its resources. */
  observe(pod: Pod, observed: RuntimePod): void;
  /** What a pod has been given could not be put in force. @param pod as above. */
  failed(pod: Pod, message: string): void;
}

/** What had pending resizes weighed again. */
export type ResizeTrigger =
  | "pod_updated"
  | "pod_resized"
  | "pods_added"
  | "pods_removed"
  | "pod_terminated"
  | "periodic_retry";

/** Decides on resizes, one pod at a time. */
export interface ResizeDecider {
  allocated(pod: Pod): Pod;
  /** A pod has come, before it is admitted: what it was given before counts, not what it asks for now. */
  take(pod: Pod): void;
  /** A pod that is on the node may ask for something else than it has been given. @returns whether it does. */
  ask(pod: Pod): boolean;
  /** Decides what is pending. @param active the pods that hold resources now: what is decided may end some. @param trigger why now.
   *  @returns the UIDs of pods that have been given something else, or have something else to show. */
  decide(active: () => readonly Pod[], trigger: ResizeTrigger, signal: AbortSignal): Promise<readonly string[]>;
}
