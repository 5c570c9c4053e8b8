import type { FencingToken } from "../host/lock.ts";
import type { OwningObject } from "../host/ownership-record.ts";
import type { NamespacedMeta, ObjectMeta, ObjectReference, Taint } from "../objects.ts";

/** A machine that becomes a node, as an object of the cluster. The schema is in the chart's CustomResourceDefinition. */
export interface GraftedNode {
  readonly metadata: NamespacedMeta;
  readonly spec: GraftedNodeSpec;
  readonly status?: GraftedNodeStatus;
}

export interface GraftedNodeSpec {
  /** Set if the node is in the configuration of a release, which decides everything about it: the object only shows it. */
  readonly static?: { readonly release: string; readonly provider: string };
  /** The pool that provides defaults, and decides whether the machine is active. */
  readonly poolRef?: { readonly name: string };
  readonly ssh: SshLoginSpec & {
    /** Optional with `reverse`, required otherwise. */
    readonly host?: string;
    /** Set if the machine connects to graftlet's listener. */
    readonly reverse?: ReverseSpec;
    /** Jump hosts, each reached from the previous one. */
    readonly proxyJump?: readonly JumpHostSpec[];
    /** Further fields of the ssh provider. */
    readonly [field: string]: unknown;
  };
  readonly network?: string;
  readonly rootDir?: string;
  readonly daemonSets?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly taints?: readonly Taint[];
  /** False: the Node does not have the taint graftlet.dev/target. */
  readonly defaultTaint?: boolean;
  readonly reserved?: Readonly<Record<string, string | number>>;
  readonly kubeletConfiguration?: Readonly<Record<string, unknown>>;
  readonly driverTopologyKeys?: readonly string[];
  readonly paused?: boolean;
  /** False: the machine leaves the cluster, the object stays. */
  readonly active?: boolean;
  readonly deletionPolicy?: "Drain" | "Release" | "Orphan";
  /** Go durations. */
  readonly drainTimeout?: string;
  readonly terminationGracePeriod?: string;
}

/** How a machine that opens a reverse tunnel is recognized. */
export interface ReverseSpec {
  /** Its public keys, in the format of sshd's authorized_keys; by default those in the login's Secret. */
  readonly authorizedKeys?: readonly string[];
}

/** An sshd, and the Secret by which graftlet logs in to it. */
export interface SshLoginSpec {
  readonly port?: number;
  readonly user?: string;
  readonly secretRef?: { readonly name: string };
  readonly hostKeyFingerprints?: readonly string[];
  readonly hostCertificateAuthorities?: readonly string[];
}

export interface JumpHostSpec extends SshLoginSpec {
  readonly host: string;
}

export interface GraftedNodeStatus {
  readonly observedGeneration?: number;
  readonly conditions?: readonly FleetCondition[];
  /** Where the API server reaches the kubelet API. */
  readonly endpoint?: { readonly address: string; readonly port: number };
  readonly machine?: MachineStatus;
  readonly owner?: OwnerStatus;
  /** Epoch of the owner that wrote the conditions: that of the previous owner until the present one has written them. */
  readonly observedEpoch?: number;
  /** Number of pods on the node. */
  readonly pods?: number;
  /** Digest of its pool's template, as the node runs with it; absent while it does not run. */
  readonly template?: string;
}

/** The replica that serves an object. */
export interface OwnerStatus {
  /** Name and UID of its Pod; empty if the object has been handed over and nobody has taken it yet. */
  readonly replica: string;
  readonly uid: string;
  /** Grows by one with each replica that takes the object. */
  readonly epoch: number;
  /** RFC 3339. */
  readonly since: string;
  /** The replica from which the machine was taken because only that one did not reach it. It counts only in the epoch that it names. A later
   *  owner names it again if the former one was lost, and otherwise leaves it as it is. */
  readonly unreachedBy?: { readonly uid: string; readonly epoch: number };
}

/** The machine as last seen. */
export interface MachineStatus {
  readonly machineID?: string;
  readonly bootID?: string;
  readonly architecture?: string;
  readonly operatingSystem?: string;
  readonly kernel?: string;
  readonly runtime?: string;
}

/** A condition of an object. @see https://kubernetes.io/docs/reference/kubernetes-api/definitions/condition-v1-meta/ */
export interface FleetCondition {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  /** One word in CamelCase. */
  readonly reason: string;
  readonly message: string;
  readonly observedGeneration?: number;
  /** RFC 3339. */
  readonly lastTransitionTime: string;
}

/** Keeps an object until its machine has left the cluster. */
export const leaveFinalizer = "graftlet.dev/leave";
/** Annotation of a deleted object: graftlet does not wait for its machine. The value is the reason. */
export const forceLeaveAnnotation = "graftlet.dev/force-leave";

/** Label of the objects that show nodes of a release's configuration. Its value is the release. */
export const staticLabel = "graftlet.dev/static";

/** Annotation with the ID of a machine that may replace the previous one. */
const acceptMachineAnnotation = "graftlet.dev/accept-machine";

/** Annotation with the owner of a machine's root directory, in place of which the object may use it: the UID of a GraftedNode, or the name of
 *  a node. */
export const takeOverAnnotation = "graftlet.dev/take-over";

/** Annotation with the fingerprint of the host key of a machine that may enrol. */
export const approveHostKeyAnnotation = "graftlet.dev/approve-host-key";

const apiVersion = "graftlet.dev/v1alpha1";

/** Path of a namespace's GraftedNodes, or of one of them. */
export function graftedNodePath(namespace: string, name?: string): string {
  const all = `/apis/${apiVersion}/namespaces/${encodeURIComponent(namespace)}/graftednodes`;
  return name === undefined ? all : `${all}/${encodeURIComponent(name)}`;
}

/** Identifies an object in a server-side apply request. */
export function graftedNodeKind(name: string): { apiVersion: string; kind: string; metadata: { name: string } } {
  return { apiVersion, kind: "GraftedNode", metadata: { name } };
}

/** The object as the owner of its machine's root directory. */
export function owningObject({ metadata: { namespace, name, uid } }: GraftedNode): OwningObject {
  return { namespace, name, uid };
}

/** The object as the owner of others, which end with it. */
export function ownedBy({ metadata: { name, uid } }: GraftedNode): Pick<ObjectMeta, "ownerReferences"> {
  return { ownerReferences: [{ apiVersion, kind: "GraftedNode", name, uid }] };
}

/** The object as the subject of events. */
export function machineReference({ metadata: { name, namespace, uid } }: GraftedNode): ObjectReference {
  return { apiVersion, kind: "GraftedNode", namespace, name, uid };
}

/** Returns the ID of the machine that the user has accepted as a replacement. */
export function acceptedMachine({ metadata }: GraftedNode): string | undefined {
  return metadata.annotations?.[acceptMachineAnnotation];
}

/** Returns the fingerprint of the host key of the machine that the user has approved to enrol. */
export function approvedHostKey({ metadata }: GraftedNode): string | undefined {
  return metadata.annotations?.[approveHostKeyAnnotation];
}

/** Returns the ID of the only machine that may serve the object; undefined if none has served it yet. */
export function expectedMachine(object: GraftedNode): string | undefined {
  return acceptedMachine(object) ?? object.status?.machine?.machineID;
}

/** Returns the owner in place of which the object may use its root directory. */
export function takenOver({ metadata }: GraftedNode): string | undefined {
  return metadata.annotations?.[takeOverAnnotation];
}

/** Returns the token with which its owner serves the object; undefined if it has no owner. */
export function fencingToken({ metadata: { uid }, status }: GraftedNode): FencingToken | undefined {
  return status?.owner && { object: uid, epoch: status.owner.epoch };
}

/** True if the node is Ready with its present owner. */
export function isReadyWithOwner({ status }: GraftedNode): boolean {
  const { owner } = status ?? {};
  return isReady(status) && owner !== undefined && owner.uid !== "" && status?.observedEpoch === owner.epoch;
}

/** True once the object is being deleted: it remains until its machine has left the cluster. */
export function isDeleted({ metadata }: GraftedNode): boolean {
  return metadata.deletionTimestamp !== undefined;
}

/** Returns the condition Ready of a status. */
export function readyCondition(status: GraftedNodeStatus | undefined): FleetCondition | undefined {
  return status?.conditions?.find(({ type }) => type === "Ready");
}

/** True if the status says that the node is Ready. */
export function isReady(status: GraftedNodeStatus | undefined): boolean {
  return readyCondition(status)?.status === "True";
}
