import type { Pod, PodStatus } from "./objects.ts";
import type { ProbeKind } from "./pipeline.ts";
import type { ResizeTrigger } from "./resizes.ts";

// Recording functions of the stages for /metrics. A call costs a counter's increment; it never waits and returns nothing.
// Durations are in milliseconds.

/** Calls to the runtime, by the kubelet's operation types: `run_podsandbox`, `list_containers`. */
export interface RuntimeMeasures {
  called(operation: string, ms: number, failed: boolean): void;
  /** @param handler of the RuntimeClass; empty for the runtime's default. */
  sandboxRun(handler: string, ms: number, failed: boolean): void;
}

/** Requests to the API server. */
export interface RequestMeasures {
  /** @param code HTTP status, or `<error>` without a response. */
  answered(code: string, method: string, host: string, ms: number): void;
}

export interface PlegMeasures {
  /** @param sinceLastMs since the start of the last successful relist; undefined before the first. */
  relistStarted(sinceLastMs: number | undefined): void;
  relisted(ms: number): void;
  inspected(ms: number): void;
  /** The event stream of the runtime was established. */
  eventStreamOpened(): void;
  /** The event stream failed or broke. */
  eventStreamFailed(): void;
}

/** What triggered a pod worker's sync; `terminated` for the last one of a pod. */
export type SyncKind = "create" | "update" | "sync" | "kill" | "terminated";

export interface WorkerMeasures {
  /** Before the first sync of a pod. */
  started(pod: Pod): void;
  /** A sync has ended, successfully or not. */
  synced(kind: SyncKind, ms: number): void;
}

/** Container type, as in metrics. */
export type ContainerKind = "container" | "init_container" | "ephemeral_container";

export interface StartMeasures {
  /** A pod's sandbox is about to be created. */
  podStarting(): void;
  podFailed(): void;
  containerStarting(sort: ContainerKind): void;
  /** @param reason of the container's Waiting state. */
  containerFailed(sort: ContainerKind, reason: string): void;
  /** A container was to be created that mounts this many images at this many paths. */
  imageVolumes(images: number, places: number, outcome: "mounted" | "failed"): void;
}

/** How it was decided whether a pod may use an image that is present on the node. */
export type PullCheck = "credentialPolicyAllowed" | "credentialRecordFound" | "mustAuthenticate" | "error";

export interface PullMeasures {
  /** @returns a function to call when the pull has succeeded. @param bytes of the image. */
  pulling(uid: string): (ms: number, bytes: bigint) => void;
  /** An image was requested. @param present undefined if presence was not checked. @param pulled true if it had to be pulled;
   *  undefined if that was not decided. */
  ensured(policy: string, present: boolean | undefined, pulled: boolean | undefined): void;
  checked(result: PullCheck): void;
  /** A credential provider plugin was run. */
  pluginRan(plugin: string, ms: number, failed: boolean): void;
}

/** Device plugins. */
export interface DeviceMeasures {
  /** A plugin requests its registration over the registration socket. */
  registering(resource: string): void;
  /** An allocation by a plugin has ended, successfully or not. */
  allocated(resource: string, ms: number): void;
}

/** Calls of the pod-resources API. */
export interface PodResourcesMeasures {
  requested(version: string, method: PodResourcesMethod): void;
  failed(version: string, method: PodResourcesMethod): void;
}

export type PodResourcesMethod = "list" | "get" | "get_allocatable";

export interface StatusMeasures {
  /** The pod has a new status on the node. */
  changed(pod: Pod, before: PodStatus | undefined, after: PodStatus): void;
  /** The API server accepted it. @param ms since it differed from the API server's. */
  written(pod: Pod, ms: number): void;
}

export interface VolumeMeasures {
  /** @param plugin the kubelet's name, such as `kubernetes.io/empty-dir`. */
  setUp(plugin: string, ms: number, failed: boolean): void;
  /** A raw block volume was mapped. */
  mapped(plugin: string, ms: number, failed: boolean): void;
  /** An expansion of a volume has ended, successfully or not. */
  expanded(plugin: string, ms: number, failed: boolean): void;
  /** @param ms in which all volumes of its pod were torn down together. */
  tornDown(plugin: string, ms: number, failed: boolean): void;
  /** Like `tornDown`, for a raw block volume. */
  unmapped(plugin: string, ms: number, failed: boolean): void;
  /** The device of a raw block volume was unmapped from the node. */
  deviceUnmapped(plugin: string, ms: number, failed: boolean): void;
}

export interface DriverMeasures {
  /** A CSI driver was called. @param method gRPC path. @param code Go's name of the status. */
  called(driver: string, method: string, code: string, ms: number): void;
}

/** Operations on cgroups. */
export type CgroupOperation = "create" | "update" | "destroy";

export interface CgroupMeasures {
  changed(operation: CgroupOperation, ms: number): void;
  /** Memory reservations for Guaranteed and Burstable pods, bytes. */
  memoryReserved(guaranteed: number, burstable: number): void;
  /** The runtime does not support the RuntimeConfig call. */
  runtimeOutdated(): void;
}

/** In-place resizes of pods. */
export interface ResizeMeasures {
  /** A resize of one container was requested. */
  requested(
    resource: "cpu" | "memory",
    requirement: "requests" | "limits",
    operation: "add" | "remove" | "increase" | "decrease",
  ): void;
  /** A resize is infeasible. */
  infeasible(detail: "swap_limitation"): void;
  /** A deferred resize was accepted. */
  accepted(trigger: ResizeTrigger): void;
  /** The actuation of allocated resources has ended, successfully or not. */
  actuated(ms: number, success: boolean): void;
}

/** Exceeded local storage limit, as in metrics: of an emptyDir, of the whole pod, of a container. */
export type StorageSignal = "emptydirfs.limit" | "ephemeralpodfs.limit" | "ephemeralcontainerfs.limit";

/** Why a pod was evicted, as in metrics: its own limit, or an eviction signal such as `memory.available`. */
export type EvictionSignal = StorageSignal | `${string}.${"available" | "inodesFree"}`;

export interface EvictionMeasures {
  evicted(signal: EvictionSignal): void;
  /** Age of the observations that led to an eviction. */
  observationAge(signal: EvictionSignal, ms: number): void;
}

/** Why an image was removed: it had not been used for too long, or its space was needed. */
export type ImageRemoval = "age" | "space";

export interface ImageRemovalMeasures {
  removed(why: ImageRemoval): void;
}

/** Shutdowns of the machine. Times are milliseconds since the epoch, 0 for none. */
export interface ShutdownMeasures {
  began(at: number): void;
  ended(at: number): void;
}

/** A certificate issued by the cluster. */
export interface CertificateMeasures {
  /** It was not issued; the request will be repeated. */
  failed(): void;
  /** @param ageMs age of the replaced certificate. */
  replaced(ageMs: number): void;
}

/** Start of a node that registers for the first time, from its machine's boot to its first Ready. Repeated calls are ignored. */
export interface NodeStartMeasures {
  /** @param at milliseconds since the epoch. */
  booted(at: number): void;
  /** The Node is about to be created. */
  registering(): void;
  /** The Node was created and did not exist before. */
  registered(): void;
  /** The API server shows the Node as Ready. */
  ready(): void;
}

export interface ProbeMeasures {
  probed(pod: Pod, container: string, kind: ProbeKind, result: "Success" | "Failure", ms: number): void;
  /** The pod's probes have ended. */
  forget(pod: Pod): void;
}

/** Requests to the kubelet API. */
export interface ServingMeasures {
  /** @param area first segment of the path. @returns a function to call when the request has ended. */
  began(method: string, area: string): (ms: number) => void;
}

/** Health checks made by the aggregate health endpoints. */
export interface HealthMeasures {
  checked(name: string, isHealthy: boolean): void;
}

export interface Measures {
  readonly runtime: RuntimeMeasures;
  readonly requests: RequestMeasures;
  readonly pleg: PlegMeasures;
  readonly workers: WorkerMeasures;
  readonly starts: StartMeasures;
  readonly pulls: PullMeasures;
  readonly devices: DeviceMeasures;
  readonly podResources: PodResourcesMeasures;
  readonly statuses: StatusMeasures;
  readonly volumes: VolumeMeasures;
  readonly drivers: DriverMeasures;
  readonly cgroups: CgroupMeasures;
  readonly resizes: ResizeMeasures;
  readonly evictions: EvictionMeasures;
  readonly imageRemovals: ImageRemovalMeasures;
  readonly shutdowns: ShutdownMeasures;
  /** The node's certificates: for the API server, and the kubelet API's own. */
  readonly certificates: { readonly client: CertificateMeasures; readonly server: CertificateMeasures };
  readonly nodeStart: NodeStartMeasures;
  readonly probes: ProbeMeasures;
  readonly serving: ServingMeasures;
  readonly health: HealthMeasures;
  /** A source has reported pods for the first time. */
  seen(pods: readonly Pod[]): void;
  /** A pod is gone and its data can be dropped. */
  forget(uid: string): void;
  /** A pod was not admitted. */
  rejected(reason: string): void;
  /** A pod was preempted by a critical pod. @param resource first insufficient resource. */
  preempted(resource: string): void;
  /** An orphaned pod was found in the runtime. */
  orphanFound(): void;
  /** Housekeeping cleaned up leftovers of this many pods. @param failed number of them that failed. */
  cleanedUp(pods: number, failed: number): void;
}
