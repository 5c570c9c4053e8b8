import type { Writable } from "node:stream";
import type * as cri from "./gen/cri.ts";
import type { ConfigMap, Container, Node, ObjectReference, Pod, PodStatus, Secret, Service } from "./objects.ts";
import type { DesiredPod, AllocatedPod } from "./roles.ts";

// Values that stages exchange, and ports (interfaces of one to three methods) through which stages call each other.
// Stages import this file and never each other; kubelet/kubelet.ts passes each stage its dependencies. Ports for resizes
// are in resizes.ts; state that several actors share is in state/.

// ---- values -------------------------------------------------------------------------------------------------------------

/** Operation of a source on pods. DELETE is a graceful deletion (the object still exists); REMOVE means that the object is gone. */
export type PodOperation = "ADD" | "UPDATE" | "DELETE" | "REMOVE" | "RECONCILE";
export type SourceName = "api" | "file" | "http";

export interface PodUpdate {
  readonly op: PodOperation;
  readonly source: SourceName;
  readonly pods: readonly DesiredPod[];
}

/** Reason for waking a pod worker. */
export type WakeCause = "config" | "pleg" | "probe" | "volume" | "device" | "resync" | "kill";

/** Observation of one pod in the runtime; both lists are sorted newest first. */
export interface RuntimePod {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly sandboxes: readonly cri.PodSandboxStatus[];
  readonly containers: readonly cri.ContainerStatus[];
  /** Sandbox IDs by container ID. */
  readonly sandboxOf: ReadonlyMap<string, string>;
  /** IPs of the newest ready sandbox; the last known ones if no sandbox is ready any more. */
  readonly ips: readonly string[];
  /** Clock.monotonic() before the runtime was queried. */
  readonly observedAt: number;
}

/** Error of a container that could not be started, shown in its Waiting state. */
export interface StartFailure {
  readonly reason: string;
  readonly message: string;
}

/** Reason for which an admission handler rejected a pod, or the node ended it. */
export interface Rejection {
  readonly reason: string;
  readonly message: string;
}

/** Reason for which the node ends a pod that should run. */
export interface Eviction extends Rejection {
  /** Message of the pod's DisruptionTarget condition; undefined: no such condition. */
  readonly disruption?: string;
}

/** A pod's volume that is mounted on the target. */
export interface MountedVolume {
  /** Absolute path on the target. */
  readonly hostPath: string;
  /** The volume itself is read-only, regardless of the mount. */
  readonly readOnly: boolean;
  /** The file system has no SELinux labels, although the target uses SELinux. */
  readonly unlabelled?: true;
  /** Set for a PersistentVolumeClaim: the volume that it is bound to. */
  readonly persistent?: PersistentVolumeFacts;
}

/** Facts about a claim's PersistentVolume that the pod's spec does not contain. */
export interface PersistentVolumeFacts {
  readonly name: string;
  /** Full name of its volume plugin. */
  readonly plugin: string;
  /** Group that owns its files: a supplemental group of containers. */
  readonly group?: bigint;
  /** Source of its usage: a file system, a remote file system whose server may be gone, the block device, or its CSI driver; undefined: none. */
  readonly space?: "fileSystem" | "remote" | "device" | Readonly<{ driver: string; volumeHandle: string; at?: string }>;
  /** volumeMode Block: containers get a block device. */
  readonly isDevice: boolean;
}

/** A subPath of a volume that a container mounts. */
export interface SubPathMount {
  /** Index in the container's volumeMounts. */
  readonly index: number;
  readonly volume: string;
  /** Path in the volume, relative and without `..`. */
  readonly subPath: string;
}

/** IDs of a pod's sandboxes and containers in the runtime. */
export interface RuntimeIds {
  readonly sandboxes: readonly string[];
  readonly containers: readonly string[];
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
  /** Why resources of running containers could not be changed; part of `error`. */
  readonly resizeError?: string;
  /** Resolves when the work after container starts is done, for which no status waits. */
  readonly rest?: Promise<void>;
}

/** Options of a log request to the kubelet API. */
export interface LogOptions {
  readonly follow: boolean;
  readonly timestamps: boolean;
  readonly previous: boolean;
  /** Milliseconds since the epoch. */
  readonly since?: number;
  readonly tailLines?: number;
  readonly limitBytes?: number;
  readonly stream: "All" | "Stdout" | "Stderr";
}

// ---- ports --------------------------------------------------------------------------------------------------------------

/** Desired pods of this node, as the sources last reported. */
export interface PodStore {
  get(uid: string): DesiredPod | undefined;
  byName(namespace: string, name: string): DesiredPod | undefined;
  list(): readonly DesiredPod[];
}

/** Pods in the runtime, as last observed. */
export interface PodCache {
  get(uid: string): RuntimePod | undefined;
  list(): readonly RuntimePod[];
}

/** Inspects one pod in the runtime and caches the observation. A pod without sandboxes and containers is returned
 *  with empty lists. */
export interface PodInspector {
  /** @param knownIds IDs that the caller knows to exist. */
  inspect(uid: string, signal: AbortSignal, knownIds?: RuntimeIds): Promise<RuntimePod>;
  /** True if the last inspection of an uncached pod failed: its absence from the cache does not mean that it does not exist. */
  needsInspection(uid: string): boolean;
  /** Records the caller's observation of a pod. */
  recordObservation(pod: RuntimePod): void;
}

/** Waits until the target is reachable, and known not to have rebooted since this node was started. Undefined
 *  if the target is the local machine. @returns a signal that aborts when the connection to the target is lost: calls over it have failed.
 *  @throws the signal's abort reason. */
export type WaitForTarget = (signal: AbortSignal) => Promise<AbortSignal>;

/** Service tunnel from pods into the cluster: opened for a new sandbox's IPs, closed before the pod's sandboxes stop. Neither call fails. */
export interface PodServiceTunnel {
  openFor(uid: string, ips: readonly string[], signal: AbortSignal): Promise<void>;
  closeFor(uid: string, signal: AbortSignal): Promise<void>;
}

export interface StatusReader {
  /** Latest status of the pod; undefined before the first. */
  get(uid: string): PodStatus | undefined;
}

export interface StatusSink extends StatusReader {
  /** Sets the latest status of a pod. It is written to the API server if it differs from the status there.
   *  @param ended no container of the pod runs, or will run, any more. */
  set(pod: DesiredPod, status: PodStatus, ended?: boolean): void;
  /** Marks a pod as terminated: its containers are gone and its volumes unmounted, so the status is final and the object may be deleted. */
  terminated(pod: DesiredPod): void;
}

export type EventType = "Normal" | "Warning";

/** Events as `kubectl describe` shows them. Never blocks, never throws. */
export interface EventSink {
  event(
    about: ObjectReference,
    type: EventType,
    reason: string,
    message: string,
    annotations?: Readonly<Record<string, string>>,
  ): void;
}

/** Secrets and ConfigMaps that pods of this node reference.
 *  Both methods throw CodedError not_found with the kubelet's text: `configmap "x" not found`, `secret "x" not found`. */
export interface ObjectCache {
  secret(namespace: string, name: string, signal: AbortSignal): Promise<Secret>;
  configMap(namespace: string, name: string, signal: AbortSignal): Promise<ConfigMap>;
}

/** Registers pods whose Secrets and ConfigMaps the object cache should watch. */
export interface ObjectRegistry {
  register(pod: Pod): void;
  unregister(uid: string): void;
}

export interface ServiceLister {
  /** Services with a cluster IP; undefined until they have been listed once. */
  list(): readonly Service[] | undefined;
}

/** RuntimeClasses, by which pods choose one of the runtime's handlers. */
export interface RuntimeClasses {
  /** The handler of the RuntimeClass of that name.
   *  @throws Error with the kubelet's text if there is none of that name, or RuntimeClasses are not known yet. */
  handler(name: string, signal: AbortSignal): Promise<string>;
}

export interface NodeSource {
  /** This node's object, as last read from the API server. */
  node(): Node | undefined;
}

/** The target's IPs, primary first: a pod's hostIPs. */
export interface HostAddresses {
  hostIPs(): readonly string[];
}

/** Mounted volumes of a pod, by their names in the pod. */
export type MountedVolumes = ReadonlyMap<string, MountedVolume>;

/** Mounts and unmounts the volumes of pods. */
export interface VolumeMounter {
  /** Mounts all volumes of the pod and brings them up to date. @throws with the kubelet's FailedMount text. */
  mount(pod: AllocatedPod, signal: AbortSignal): Promise<MountedVolumes>;
  /** The volumes of a pod that are mounted at present; empty before `mount` resolved. */
  mounted(uid: string): MountedVolumes;
  /** Unmounts all volumes and removes graftlet's directories; the pod object is not needed. Idempotent. */
  unmount(uid: string, signal: AbortSignal): Promise<void>;
}

/** Protects container starts from concurrent updates of the pod's volumes. */
export interface StableFiles {
  /** Runs work while no file of the pod's configMap, secret, projected and downwardAPI volumes is replaced: the runtime may
   *  mount them by path. Updates wait until the work is done. */
  withStableFiles<T>(uid: string, work: () => Promise<T>): Promise<T>;
}

/** subPath mounts. */
export interface SubPathMounts {
  /** Bind-mounts subPaths of a pod's mounted volumes where a runtime can mount them safely, regardless of links that a container creates.
   *  Missing directories are created. Idempotent: a restarted container sees the current files.
   *  @returns absolute paths on the target, by index. @throws with the kubelet's text, without the contents of links on the target. */
  bindSubPaths(
    pod: Pod,
    containerName: string,
    parts: readonly SubPathMount[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, string>>;
}

export type ProbeVerdict = "Success" | "Failure" | "Unknown";

/** The probes of a container. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#types-of-probe */
export type ProbeKind = "liveness" | "readiness" | "startup";

export interface ProbeResults {
  /** Latest result of the container's readiness probe; undefined without one. */
  readiness(uid: string, containerName: string, containerId: string): ProbeVerdict | undefined;
  /** True once the container has passed its startup probe; undefined without one. */
  started(uid: string, containerName: string, containerId: string): boolean | undefined;
  /** The failed probe for which the container is to be killed. */
  failedProbe(uid: string, containerName: string, containerId: string): FatalProbeKind | undefined;
}

export type FatalProbeKind = Exclude<ProbeKind, "readiness">;

/** Starts and stops probing a pod's containers. */
export interface Prober {
  add(pod: AllocatedPod): void;
  /** Stops liveness and startup probes of a terminating pod. */
  stopLivenessAndStartup(uid: string): void;
  remove(uid: string): void;
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

/** Writes a container's log to `out`, respecting its backpressure, until the end or (follow) until the container is gone. */
export interface LogReader {
  read(container: LogSource, options: LogOptions, out: Writable, signal: AbortSignal): Promise<void>;
}

export interface LogSource {
  readonly containerId: string;
  /** Path of the log file on the target (ContainerStatus.logPath). */
  readonly logPath: string;
}

/** The node's pressure conditions. */
export interface Pressure {
  readonly memory: boolean;
  readonly disk: boolean;
  readonly pid: boolean;
}

/** The node's pressure, as last observed by the eviction manager. */
export interface NodePressure {
  /** Undefined until the target has been read. */
  readonly pressure: Pressure | undefined;
  /** Why the target cannot be read; undefined if it can. */
  readonly problem: string | undefined;
}

/** Admits pods, one at a time. */
export interface Admission {
  /** @param others active pods that are admitted already. @returns undefined if the pod may run. */
  admit(pod: AllocatedPod, others: readonly AllocatedPod[], signal: AbortSignal): Promise<Rejection | undefined>;
}

/** Frees space on the target by removing what no pod needs. */
export interface Reclaim {
  /** Removes dead containers beyond the limits, and all containers and sandboxes of terminated pods, deleted or not.
   *  @throws if the runtime cannot be queried. */
  deleteUnusedContainers(signal: AbortSignal): Promise<void>;
  /** Removes all unused images that may be removed, regardless of disk usage. @returns bytes freed.
   *  @throws if the runtime cannot be queried, or could not remove some of them. */
  deleteUnusedImages(signal: AbortSignal): Promise<number>;
}

/** Checks pods for fields that this node does not support; such a pod is held, with an event that names them. */
export interface FieldChecker {
  /** Paths such as `spec.containers[0].lifecycle.preStop`, each with the reason; empty if all fields are supported. */
  unsupportedFields(
    pod: Pod,
    signal: AbortSignal,
  ): Promise<readonly { readonly field: string; readonly why: string }[]>;
}

/** The list of the spec that a container is in. */
export type ContainerKind = "containers" | "initContainers" | "ephemeralContainers";

export interface NamedContainer {
  readonly kind: ContainerKind;
  readonly container: Container;
}
