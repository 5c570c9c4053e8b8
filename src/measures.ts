import type { Pod, PodStatus } from "./objects.ts";
import type { ProbeKind } from "./pipeline.ts";
import type { ResizeTrigger } from "./resizes.ts";

// Measurements of the stages' work, for /metrics. One costs a counter's increment: it waits for nothing, returns nothing,
// and no stage knows what becomes of it. Durations are in milliseconds.

/** Calls to the runtime, by CRI's names: `run_podsandbox`, `list_containers`. */
export interface RuntimeMeasures {
  called(operation: string, ms: number, failed: boolean): void;
  /** @param handler of the RuntimeClass; empty for the runtime's default. */
  sandboxRun(handler: string, ms: number, failed: boolean): void;
}

/** Requests to the API server. */
export interface RequestMeasures {
  /** @param code HTTP status, or `<error>` when there was no answer. */
  answered(code: string, method: string, host: string, ms: number): void;
}

export interface PlegMeasures {
  /** @param sinceLastMs from the beginning of the last list that was answered; undefined before. */
  relistBegan(sinceLastMs: number | undefined): void;
  relisted(ms: number): void;
  looked(ms: number): void;
  /** The runtime tells of events from now on. */
  eventsBegan(): void;
  /** It could not be asked for them, or does not tell of them any more. */
  eventsBroke(): void;
}

/** Purpose of a worker's pass: what brought it about, and `terminated` for the last one of a pod. */
export type PassKind = "create" | "update" | "sync" | "kill" | "terminated";

export interface WorkerMeasures {
  /** Before the first pass of a pod. */
  began(pod: Pod): void;
  /** A pass has ended, whether it worked or not. */
  passed(kind: PassKind, ms: number): void;
}

/** Which sort of container, as metrics have it. */
export type ContainerSort = "container" | "init_container" | "ephemeral_container";

export interface StartMeasures {
  /** A pod's sandbox is to be made. */
  podStarting(): void;
  podFailed(): void;
  containerStarting(sort: ContainerSort): void;
  /** @param reason as the container's Waiting state has it. */
  containerFailed(sort: ContainerSort, reason: string): void;
  /** A container was to be made that mounts this many images, in this many places. */
  imageVolumes(images: number, places: number, outcome: "mounted" | "failed"): void;
}

/** How it was decided whether a pod may use an image that is on the node. */
export type PullCheck = "credentialPolicyAllowed" | "credentialRecordFound" | "mustAuthenticate" | "error";

export interface PullMeasures {
  /** @returns what is called when the pull has worked. @param bytes of the image. */
  pulling(uid: string): (ms: number, bytes: bigint) => void;
  /** An image was asked for. @param present undefined where presence was not checked. @param pulled it had to be pulled; undefined where
   *  that was not decided. */
  ensured(policy: string, present: boolean | undefined, pulled: boolean | undefined): void;
  checked(result: PullCheck): void;
  /** A program was asked for credentials. */
  pluginRan(plugin: string, ms: number, failed: boolean): void;
}

/** Device plugins. */
export interface DeviceMeasures {
  /** A plugin asks to be registered, by the socket of registration. */
  registering(resource: string): void;
  /** A plugin was asked to allocate devices, whether it did or not. */
  allocated(resource: string, ms: number): void;
}

/** Calls of monitors that ask which devices pods have. */
export interface PodResourcesMeasures {
  asked(version: string, method: PodResourcesMethod): void;
  failed(version: string, method: PodResourcesMethod): void;
}

export type PodResourcesMethod = "list" | "get" | "get_allocatable";

export interface StatusMeasures {
  /** The node holds a new status of the pod. */
  changed(pod: Pod, before: PodStatus | undefined, after: PodStatus): void;
  /** The API server took it. @param ms since it was not what the API server showed. */
  written(pod: Pod, ms: number): void;
}

export interface VolumeMeasures {
  /** @param plugin as the kubelet names it, such as `kubernetes.io/empty-dir`. */
  setUp(plugin: string, ms: number, failed: boolean): void;
  /** A volume that containers have as a device was set up. */
  mapped(plugin: string, ms: number, failed: boolean): void;
  /** A volume that pods have was made bigger, or could not be. */
  expanded(plugin: string, ms: number, failed: boolean): void;
  /** @param ms in which all volumes of its pod were taken down together. */
  tornDown(plugin: string, ms: number, failed: boolean): void;
  /** As `tornDown`, of a volume that containers had as a device. */
  unmapped(plugin: string, ms: number, failed: boolean): void;
  /** A volume that containers had as a device was taken from the node. */
  deviceUnmapped(plugin: string, ms: number, failed: boolean): void;
}

export interface DriverMeasures {
  /** A storage driver was called. @param method its gRPC path. @param code Go's name of the status. */
  called(driver: string, method: string, code: string, ms: number): void;
}

/** Operations on cgroups. */
export type CgroupOperation = "create" | "update" | "destroy";

export interface CgroupMeasures {
  changed(operation: CgroupOperation, ms: number): void;
  /** Memory, in bytes, is kept for Guaranteed pods, and for Burstable ones. */
  kept(guaranteed: number, burstable: number): void;
  /** The runtime has no call for its cgroup driver. */
  outdated(): void;
}

/** Changes of the resources of pods that are on the node. */
export interface ResizeMeasures {
  /** Something else was asked for, for one container. */
  asked(
    resource: "cpu" | "memory",
    requirement: "requests" | "limits",
    operation: "add" | "remove" | "increase" | "decrease",
  ): void;
  /** One cannot be done in place. */
  infeasible(detail: "swap_limitation"): void;
  /** One that had to wait was granted. */
  accepted(trigger: ResizeTrigger): void;
  /** The allocated resources were actuated, or could not be. */
  done(ms: number, success: boolean): void;
}

/** Which limit a pod was ended for, as metrics have it: of an emptyDir, of the whole pod, of a container. */
export type StorageSignal = "emptydirfs.limit" | "ephemeralpodfs.limit" | "ephemeralcontainerfs.limit";

/** Why a pod was evicted, as metrics have it: its own limit, or a signal of the node such as `memory.available`. */
export type EvictionSignal = StorageSignal | `${string}.${"available" | "inodesFree"}`;

export interface EvictionMeasures {
  evicted(signal: EvictionSignal): void;
  /** Age of the readings on which an eviction was decided. */
  aged(signal: EvictionSignal, ms: number): void;
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

/** A certificate that the cluster issues. */
export interface CertificateMeasures {
  /** It was not issued: it will be asked for again. */
  failed(): void;
  /** @param ageMs of the certificate in whose place it came. */
  replaced(ageMs: number): void;
}

/** A node that registers for the first time, from its machine's boot to its first Ready. A call that comes again counts for nothing. */
export interface NodeStartMeasures {
  /** @param at milliseconds since the epoch. */
  booted(at: number): void;
  /** The Node is to be created. */
  registering(): void;
  /** It was created, not found. */
  registered(): void;
  /** The API server shows it as Ready. */
  ready(): void;
}

export interface ProbeMeasures {
  probed(pod: Pod, container: string, kind: ProbeKind, result: "Success" | "Failure", ms: number): void;
  /** The pod's probes have ended. */
  forget(pod: Pod): void;
}

/** Requests to the kubelet API. */
export interface ServingMeasures {
  /** @param area the first part of the path. @returns what is called when the request has ended. */
  began(method: string, area: string): (ms: number) => void;
}

/** Health checks that a path for all of them has made. */
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
  /** A source has told of pods for the first time. */
  seen(pods: readonly Pod[]): void;
  /** A pod is gone for good. */
  forget(uid: string): void;
  /** A pod was not admitted. */
  rejected(reason: string): void;
  /** A pod ended in favour of a critical one. @param resource the first that was short. */
  preempted(resource: string): void;
  /** An orphaned pod was found in the runtime. */
  orphanFound(): void;
  /** A round of housekeeping cleared away what was left of so many pods. @param failed of them. */
  swept(pods: number, failed: number): void;
}
