import type { Writable } from "node:stream";
import type * as cri from "./gen/cri.ts";
import type { ConfigMap, Container, Node, ObjectReference, Pod, PodStatus, Secret, Service } from "./objects.ts";
import type { AskedPod, GivenPod } from "./roles.ts";

// The vocabulary: the values that stages exchange, and the ports (one to three methods) through which one stage asks another.
// Stages import this file and never each other; kubelet/kubelet.ts hands each stage what it asks for. Ports that concern resizes
// alone are in resizes.ts; what several actors know of a pod is in state/.

// ---- values -------------------------------------------------------------------------------------------------------------

/** Operation of a source on pods. A graceful deletion is DELETE (the object is still there); REMOVE means the object is gone. */
export type PodOperation = "ADD" | "UPDATE" | "DELETE" | "REMOVE" | "RECONCILE";
export type SourceName = "api" | "file" | "http";

export interface PodUpdate {
  readonly op: PodOperation;
  readonly source: SourceName;
  readonly pods: readonly AskedPod[];
}

/** Why a pod worker is woken. */
export type WakeCause = "config" | "pleg" | "probe" | "volume" | "device" | "resync" | "kill";

/** One pod as the runtime shows it, newest first in both lists. */
export interface RuntimePod {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly sandboxes: readonly cri.PodSandboxStatus[];
  readonly containers: readonly cri.ContainerStatus[];
  /** ID of the sandbox of each container, by the container's ID. */
  readonly sandboxOf: ReadonlyMap<string, string>;
  /** Addresses of the newest ready sandbox; the last known ones when no sandbox is ready any more. */
  readonly ips: readonly string[];
  /** Clock.monotonic() before the runtime was asked. */
  readonly observedAt: number;
}

/** Why a container could not be started: what its status shows as Waiting. */
export interface StartFailure {
  readonly reason: string;
  readonly message: string;
}

/** An admission handler's no, or why the node ended a pod. */
export interface Rejection {
  readonly reason: string;
  readonly message: string;
}

/** Why the node ends a pod that is meant to run. */
export interface Eviction extends Rejection {
  /** Message of the pod's condition DisruptionTarget; without it the pod has none. */
  readonly disruption?: string;
}

/** A volume of a pod that is ready on the target. */
export interface MountedVolume {
  /** Absolute path on the target. */
  readonly hostPath: string;
  /** The volume itself may only be read, whatever the mount says. */
  readonly readOnly: boolean;
  /** Its file system has no labels of SELinux, though the target has SELinux. */
  readonly unlabelled?: true;
  /** The persistent volume that a claim is bound to. */
  readonly persistent?: PersistentPlace;
}

/** Facts of the volume behind a claim, which the pod's spec does not have. */
export interface PersistentPlace {
  readonly name: string;
  /** Full name of the plugin that serves it. */
  readonly plugin: string;
  /** The group that its files belong to: containers run with it, too. */
  readonly group?: bigint;
  /** The teller of its space: a file system, one whose server may be gone, the device that it is, its storage driver; or nothing. */
  readonly space?: "fileSystem" | "remote" | "device" | Readonly<{ driver: string; volumeHandle: string; at?: string }>;
  /** It is a block device: containers have it as such. */
  readonly isDevice: boolean;
}

/** A part of a volume that a container mounts in the volume's place. */
export interface VolumePart {
  /** Place in the container's volumeMounts. */
  readonly index: number;
  readonly volume: string;
  /** Path in the volume: relative, without `..`. */
  readonly subPath: string;
}

/** IDs of what the runtime has for a pod. */
export interface RuntimeIds {
  readonly sandboxes: readonly string[];
  readonly containers: readonly string[];
}

/** Outcome of one pass over a pod's containers. */
export interface SyncOutcome {
  /** First error; every container that could be started has been. */
  readonly error?: Error;
  /** Milliseconds since the epoch: the earliest end of a crash-loop back-off, when that is the only thing in the way. */
  readonly retryAt?: number;
  /** Another pass can do more, at once. */
  readonly again?: true;
  /** Nothing was to be done, and the runtime's pod is as it was. */
  readonly untouched?: true;
  /** Sandboxes and containers that were created. */
  readonly made?: RuntimeIds;
  /** IDs of containers that the runtime answered it could not start. */
  readonly refused?: readonly string[];
  /** Why the resources of what runs could not be changed; part of `error`. */
  readonly resizeError?: string;
  /** Resolves when that is done too which follows a start and which no status waits for. */
  readonly rest?: Promise<void>;
}

/** Options of a log request, as the kubelet API takes them. */
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

/** The pods that this node should run, as the sources last said. */
export interface PodStore {
  get(uid: string): AskedPod | undefined;
  byName(namespace: string, name: string): AskedPod | undefined;
  list(): readonly AskedPod[];
}

/** The pods that the runtime has, as last seen. */
export interface PodCache {
  get(uid: string): RuntimePod | undefined;
  list(): readonly RuntimePod[];
}

/** Asks the runtime about one pod, now, and puts the answer in the cache. A pod without sandboxes and containers comes back
 *  with empty lists. */
export interface PodInspector {
  /** @param made what the caller knows the pod to have. */
  inspect(uid: string, signal: AbortSignal, made?: RuntimeIds): Promise<RuntimePod>;
  /** The runtime has something of the pod that could not be inspected yet: its absence from the cache means nothing. */
  isUnseen(uid: string): boolean;
  /** Keeps what the caller has seen of a pod. */
  learn(pod: RuntimePod): void;
}

/** Waits until the target can be worked on: it is in reach, and known to live the life in which this node was started. Absent
 *  where the target is this machine. @returns what aborts once a connection to it is lost: what went by it has failed.
 *  @throws what the signal aborted with. */
export type Presence = (signal: AbortSignal) => Promise<AbortSignal>;

/** The way of pods into the cluster: open to a new sandbox's addresses, shut before the pod's sandboxes stop. Neither call fails. */
export interface PodWay {
  joined(uid: string, ips: readonly string[], signal: AbortSignal): Promise<void>;
  left(uid: string, signal: AbortSignal): Promise<void>;
}

export interface StatusReader {
  /** The status that this node holds for the pod; undefined before the first. */
  get(uid: string): PodStatus | undefined;
}

export interface StatusSink extends StatusReader {
  /** The newest truth about a pod. Written to the API server when it differs from what is there.
   *  @param ended no container of the pod runs any more, nor will. */
  set(pod: AskedPod, status: PodStatus, ended?: boolean): void;
  /** The pod's containers are gone and its volumes unmounted: final status, and the object may be deleted. */
  terminated(pod: AskedPod): void;
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

/** Secrets and config maps that pods of this node reference.
 *  Gets throw CodedError not_found with the kubelet's text: `configmap "x" not found`, `secret "x" not found`. */
export interface ObjectCache {
  secret(namespace: string, name: string, signal: AbortSignal): Promise<Secret>;
  configMap(namespace: string, name: string, signal: AbortSignal): Promise<ConfigMap>;
}

/** Tells the object cache which objects to keep watched. */
export interface ObjectRegistry {
  register(pod: Pod): void;
  unregister(uid: string): void;
}

export interface ServiceLister {
  /** Services with a cluster IP; undefined until they have been read once. */
  list(): readonly Service[] | undefined;
}

/** By which pods choose one of the runtime's handlers. */
export interface RuntimeClasses {
  /** The handler of the class of that name.
   *  @throws Error in the kubelet's words where there is none of that name, or none is known yet. */
  handler(name: string, signal: AbortSignal): Promise<string>;
}

export interface NodeSource {
  /** This node's object as the API server last showed it. */
  node(): Node | undefined;
}

/** The target's addresses, primary first: a pod's hostIPs. */
export interface HostAddresses {
  hostIPs(): readonly string[];
}

/** The volumes of pods. */
export interface VolumeGate {
  /** Resolves when every volume of the pod is mounted and current. @throws with the kubelet's FailedMount text. */
  mount(pod: GivenPod, signal: AbortSignal): Promise<void>;
  /** By volume name; empty before `mount` resolved. */
  mounted(uid: string): ReadonlyMap<string, MountedVolume>;
  /** Unmounts all and removes what graftlet made; the pod may be known by its UID alone. Safe to repeat. */
  unmount(uid: string, signal: AbortSignal): Promise<void>;
}

/** Protects the start of a container from updates of its pod's volumes. */
export interface StableFiles {
  /** Runs work during which no file of the pod's configMap, secret, projected and downwardAPI volumes is replaced: the runtime may
   *  mount them by path. Updates wait until it is done. */
  withStableFiles<T>(uid: string, work: () => Promise<T>): Promise<T>;
}

/** Parts of volumes. */
export interface VolumeParts {
  /** Makes parts of a pod's mounted volumes visible where a runtime may mount them, whatever links a container puts in the way.
   *  Directories that are missing are made. Safe to repeat: a container that starts again sees what is there then.
   *  @returns absolute paths on the target, by index. @throws in the kubelet's words, without a word of the target's files. */
  bindParts(
    pod: Pod,
    containerName: string,
    parts: readonly VolumePart[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<number, string>>;
}

export type ProbeVerdict = "Success" | "Failure" | "Unknown";

/** The probes of a container. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#types-of-probe */
export type ProbeKind = "liveness" | "readiness" | "startup";

export interface ProbeResults {
  /** Readiness of the container by its probe: the newest verdict, or undefined when no probe watches it. */
  readiness(uid: string, containerName: string, containerId: string): ProbeVerdict | undefined;
  /** True once the container has passed its startup probe; undefined without one. */
  started(uid: string, containerName: string, containerId: string): boolean | undefined;
  /** The probe by whose verdict the container is to be killed. */
  condemnedBy(uid: string, containerName: string, containerId: string): CondemningProbe | undefined;
}

export type CondemningProbe = Exclude<ProbeKind, "readiness">;

/** Starts and stops probing a pod's containers. */
export interface Prober {
  add(pod: GivenPod): void;
  /** The pod ends: only its readiness is still of interest. */
  spare(uid: string): void;
  remove(uid: string): void;
}

/** Shows a pod whose new sandbox has its addresses, before containers and maybe long pulls follow.
 *  @param seen the pod with its sandbox, where it has nothing else. */
export type ShowPod = (seen: RuntimePod | undefined) => Promise<void>;

/** One pass over a pod's sandbox and containers. */
export interface PlannedPass {
  /** Carries it out; the pod's volumes are mounted already. The signal interrupts waits and pulls, never a call that makes or
   *  starts something. Rejects only when the signal aborts. */
  perform(show: ShowPod, signal: AbortSignal): Promise<SyncOutcome>;
}

/** Starts and stops what the runtime holds of a pod. */
export interface PodRuntime {
  /** Decides what makes the runtime's pod what the spec says, and asks the target at once for what its sandbox needs. Rejects
   *  only when the signal aborts. */
  plan(pod: GivenPod, observed: RuntimePod, signal: AbortSignal): Promise<PlannedPass>;
  /** Stops all containers, then the sandboxes. `pod` is undefined for one that only the runtime knows. */
  kill(
    observed: RuntimePod,
    pod: Pod | undefined,
    graceSeconds: number | undefined,
    signal: AbortSignal,
  ): Promise<void>;
}

/** Writes a container's log to `out`, honouring its backpressure, until the end or (follow) until the container is gone. */
export interface LogReader {
  read(container: LogSource, options: LogOptions, out: Writable, signal: AbortSignal): Promise<void>;
}

export interface LogSource {
  readonly containerId: string;
  /** Path of the log file on the target, as ContainerStatus.logPath has it. */
  readonly logPath: string;
}

/** Resources that run short on the node, as its conditions say. */
export interface Pressure {
  readonly memory: boolean;
  readonly disk: boolean;
  readonly pid: boolean;
}

/** The node's resources as the eviction manager last found them. */
export interface NodePressure {
  /** Undefined until the target has been read. */
  readonly pressure: Pressure | undefined;
  /** Why the target cannot be read, if it cannot. */
  readonly problem: string | undefined;
}

/** Admits pods beside those that the node has; one pod at a time. */
export interface Admission {
  /** @param others the active pods already admitted. @returns undefined when the pod may run. */
  admit(pod: GivenPod, others: readonly GivenPod[], signal: AbortSignal): Promise<Rejection | undefined>;
}

/** Frees space on the target by removing what no pod needs. */
export interface Reclaim {
  /** Removes dead containers beyond the limits, and all containers and sandboxes of pods that have ended, deleted or not.
   *  @throws when the runtime cannot be asked. */
  deleteUnusedContainers(signal: AbortSignal): Promise<void>;
  /** Removes every image that nothing uses and that may be removed, however full the file system is. @returns bytes freed.
   *  @throws when the runtime cannot be asked, or could not remove some of them. */
  deleteUnusedImages(signal: AbortSignal): Promise<number>;
}

/** Fields of a pod that this node does not serve; such a pod is held, with an event that names them. */
export interface Served {
  /** Paths like `spec.containers[0].lifecycle.preStop`, each with a clause that says why; empty when all is served. */
  unserved(pod: Pod, signal: AbortSignal): Promise<readonly { readonly field: string; readonly why: string }[]>;
}

/** Which list of the spec a container stands in. */
export type ContainerKind = "containers" | "initContainers" | "ephemeralContainers";

export interface NamedContainer {
  readonly kind: ContainerKind;
  readonly container: Container;
}
