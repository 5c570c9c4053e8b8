import type { Pod, PodStatus } from "../objects.ts";
import type { MountedVolumes, RuntimeIds, RuntimePod, StatusReader } from "../pipeline.ts";
import type { AllocatedPod, DesiredPod } from "../roles.ts";
import type { ResizeTrigger } from "../state/signals.ts";

// Ports of other stages through which sync runs pods.

/** Registers pods whose Secrets and ConfigMaps the object cache should watch. */
export interface ObjectRegistry {
  register(pod: Pod): void;
  unregister(uid: string): void;
}

export interface StatusSink extends StatusReader {
  /** Sets the latest status of a pod. It is written to the API server if it differs from the status there.
   *  @param ended no container of the pod runs, or will run, any more. */
  set(pod: DesiredPod, status: PodStatus, ended?: boolean): void;
  /** Marks a pod as terminated: its containers are gone and its volumes unmounted, so the status is final and the object may be deleted. */
  terminated(pod: DesiredPod): void;
}

/** Checks pods for fields that this node does not support; such a pod is held, with an event that names them. */
export interface FieldChecker {
  /** Paths such as `spec.containers[0].lifecycle.preStop`, each with the reason; empty if all fields are supported. */
  unsupportedFields(
    pod: Pod,
    signal: AbortSignal,
  ): Promise<readonly { readonly field: string; readonly why: string }[]>;
}

/** Starts and stops probing a pod's containers. */
export interface Prober {
  add(pod: AllocatedPod): void;
  /** Stops liveness and startup probes of a terminating pod. */
  stopLivenessAndStartup(uid: string): void;
  remove(uid: string): void;
}

/** Outcome of one sync pass over a pod's sandbox and containers. */
export interface SyncOutcome {
  /** First error; all containers that could be started have been. */
  readonly error?: Error;
  /** Milliseconds since the epoch: the earliest end of a crash-loop back-off, if nothing else is pending. */
  readonly retryAt?: number;
  /** Another pass should run at once. */
  readonly again?: true;
  /** Nothing was changed in the runtime. */
  readonly untouched?: true;
  /** Sandboxes and containers that were created. */
  readonly made?: RuntimeIds;
  /** IDs of containers that the runtime refused to start. */
  readonly refused?: readonly string[];
  /** Message of the error with which resources of running containers could not be changed; also part of `error`. */
  readonly resizeError?: string;
  /** Resolves when the work that follows container starts is done; pod statuses do not wait for it. */
  readonly rest?: Promise<void>;
}

/** Called when a new sandbox has its IPs, to report the pod's status before containers and possibly long pulls follow.
 *  @param seen the pod with its sandbox, if it has nothing else. */
export type OnSandboxReady = (seen: RuntimePod | undefined) => Promise<void>;

/** A planned sync of a pod's sandbox and containers. */
export interface PlannedSync {
  /** Executes the plan with the volumes that the pass has mounted. The signal interrupts waits and pulls, never a call that creates or
   *  starts something. Rejects only when the signal aborts. */
  perform(mounted: MountedVolumes, onSandboxReady: OnSandboxReady, signal: AbortSignal): Promise<SyncOutcome>;
}

/** Starts and stops a pod's sandbox and containers. */
export interface PodRuntime {
  /** Computes the actions that reconcile the runtime's pod with the spec, and starts reading what its sandbox needs from the target. Rejects
   *  only when the signal aborts. */
  plan(pod: AllocatedPod, observed: RuntimePod, signal: AbortSignal): Promise<PlannedSync>;
  /** Stops all containers, then the sandboxes. `pod` is undefined for a pod that only the runtime knows. */
  kill(
    observed: RuntimePod,
    pod: Pod | undefined,
    graceSeconds: number | undefined,
    signal: AbortSignal,
  ): Promise<void>;
}

/** In-place resizes of pods on the node.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export interface Resizes {
  /** Returns the pod with its allocated resources in place of the requested ones. */
  allocatedPod(pod: DesiredPod): AllocatedPod;
  /** Returns the pod with the actuated resources of its running containers. */
  actuatedPod(pod: AllocatedPod, observed: RuntimePod): AllocatedPod;
  /** Checks by an observation whether the pod's resize is complete. @param pod the allocated pod. */
  checkProgress(pod: AllocatedPod, observed: RuntimePod): void;
  /** Records that the pod's allocation could not be actuated. @param pod the allocated pod. */
  actuationFailed(pod: AllocatedPod, message: string): void;
}

/** Decides on resizes, one pod at a time. */
export interface ResizeDecider {
  allocatedPod(pod: DesiredPod): AllocatedPod;
  /** Returns the allocated pod, with resources at least as high as the actuated ones, which other pods cannot use yet. */
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
