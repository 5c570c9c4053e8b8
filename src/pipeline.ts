import type { Writable } from "node:stream";
import type * as cri from "./gen/cri.ts";
import type * as csi from "./gen/csi.ts";
import type { CSIDriver, ConfigMap, Node, ObjectReference, PodStatus, Secret, VolumeAttachment } from "./objects.ts";
import type { DesiredPod, AllocatedPod } from "./roles.ts";

// Values that stages exchange, and ports (interfaces of a few methods) that three or more of them use. A port with one consumer is in
// that stage's ports.ts. Stages never import each other's code; src/kubelet passes each stage its dependencies. State that several
// actors share is in state/.

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

/** Why an admission handler rejected a pod, or why the node ended it. */
export interface Rejection {
  readonly reason: string;
  readonly message: string;
}

/** Why the node ends a pod that should run. */
export interface Eviction extends Rejection {
  /** Message of the pod's DisruptionTarget condition; undefined: no such condition. */
  readonly disruption?: string;
}

/** A pod's volume that is mounted on the target. */
export interface MountedVolume {
  /** Absolute path on the target. */
  readonly hostPath: string;
  /** True if the volume itself is read-only, regardless of the mount. */
  readonly readOnly: boolean;
  /** Set if the target uses SELinux but the volume's files cannot be relabelled: the file system has no labels, or is mounted with a
   *  label. */
  readonly unlabelled?: true;
  /** Set for a PersistentVolumeClaim, the volume that it is bound to, and for a pod's own volume of an in-tree type. */
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

export interface StatusReader {
  /** Latest status of the pod; undefined before the first. */
  get(uid: string): PodStatus | undefined;
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

export interface NodeSource {
  /** This node's object, as last read from the API server. */
  node(): Node | undefined;
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

export type ProbeVerdict = "Success" | "Failure" | "Unknown";

/** The probes of a container. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#types-of-probe */
export type ProbeKind = "liveness" | "readiness" | "startup";

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

/** The node service of a CSI driver. Every call throws CodedError, whose message is the failure in Go's format. A call is
 *  interrupted only by its timeout: the driver would continue, and its progress would be unknown.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#node-service-rpc */
export interface CsiNodeService {
  capabilities(): Promise<ReadonlySet<csi.NodeServiceCapability_RPC_Type>>;
  stage(request: csi.NodeStageVolumeRequest): Promise<void>;
  unstage(request: csi.NodeUnstageVolumeRequest): Promise<void>;
  publish(request: csi.NodePublishVolumeRequest): Promise<void>;
  unpublish(request: csi.NodeUnpublishVolumeRequest): Promise<void>;
  /** Requires EXPAND_VOLUME. */
  expand(request: csi.NodeExpandVolumeRequest): Promise<void>;
  /** Requires GET_VOLUME_STATS. */
  stats(request: csi.NodeGetVolumeStatsRequest): Promise<csi.NodeGetVolumeStatsResponse>;
}

/** CSI drivers registered on the target, and the cluster's objects about them. */
export interface CsiDrivers {
  /** @throws not_found, in the kubelet's words, for an unregistered driver. */
  driver(name: string): CsiNodeService;
  /** The CSIDriver object of a driver; undefined if there is none. */
  csiDriver(name: string, signal: AbortSignal): Promise<CSIDriver | undefined>;
  /** Reads the driver's volume limit again, and updates the CSINode. @throws CodedError in the kubelet's words. */
  refreshLimit(name: string, signal: AbortSignal): Promise<void>;
  /** A VolumeAttachment by name. @throws not_found in the API server's words. */
  volumeAttachment(name: string, signal: AbortSignal): Promise<VolumeAttachment>;
}
