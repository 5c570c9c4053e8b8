import type { Node, Pod, Taint, Toleration } from "../objects.ts";
import { termMatches } from "../pod/node-selector.ts";
import { type PodAdmitHandler, predicateFailed } from "./admit-attributes.ts";
import { isSidecar, isCritical, allContainers, isStaticPod } from "../pod/containers.ts";
import type { Pressure, Rejection } from "../pipeline.ts";
import { qosClass } from "../pod/qos.ts";
import { appArmorAnnotation } from "../pod/security.ts";

/** Rejects a pod whose node selector or required node affinity does not match the node.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/ */
export const nodeAffinityMatches: PodAdmitHandler = ({ pod, node }) =>
  selectorMatches(pod, node) && affinityMatches(pod, node)
    ? undefined
    : predicateFailed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");

function selectorMatches({ spec }: Pod, { metadata }: Node): boolean {
  return Object.entries(spec.nodeSelector ?? {}).every(([key, value]) => metadata.labels?.[key] === value);
}

/** Terms are ORed; a term without requirements matches nothing. */
function affinityMatches({ spec }: Pod, node: Node): boolean {
  const required = spec.affinity?.nodeAffinity?.requiredDuringSchedulingIgnoredDuringExecution;
  return !required || required.nodeSelectorTerms.some((term) => termMatches(term, node));
}

/** Rejects a pod that is bound to another node. */
export const nodeNameMatches: PodAdmitHandler = ({ pod, node }) =>
  !pod.spec.nodeName || pod.spec.nodeName === node.metadata.name
    ? undefined
    : predicateFailed("NodeName", "node(s) didn't match the requested node name");

const osLabel = "kubernetes.io/os";
const nodeOs = "linux";

/** Rejects a pod whose `kubernetes.io/os` label names another operating system. */
export const osLabelMatches: PodAdmitHandler = ({ pod }) => {
  const wanted = pod.metadata.labels?.[osLabel];
  if (wanted === undefined || wanted === nodeOs) return undefined;
  return {
    reason: "PodOSSelectorNodeLabelDoesNotMatch",
    message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
  };
};

/** @see https://kubernetes.io/docs/concepts/workloads/pods/#pod-os */
export const osFieldMatches: PodAdmitHandler = ({ pod }) => {
  if (!pod.spec.os || pod.spec.os.name === nodeOs) return undefined;
  return { reason: "PodOSNotSupported", message: "Failed to admit pod as the OS field doesn't match node OS" };
};

interface HostPort {
  readonly ip: string;
  readonly protocol: string;
  readonly port: number;
}

const anyAddress = "0.0.0.0";

/** Rejects a pod whose host ports are in use by another pod. */
export const hostPortsFree: PodAdmitHandler = ({ pod, otherPods }) => {
  const taken = otherPods.flatMap(hostPorts);
  const clash = hostPorts(pod).some((wanted) => taken.some((other) => overlap(wanted, other)));
  return clash ? predicateFailed("NodePorts", "node(s) didn't have free ports for the requested pod ports") : undefined;
};

function overlap(a: HostPort, b: HostPort): boolean {
  const sameAddress = a.ip === b.ip || a.ip === anyAddress || b.ip === anyAddress;
  return sameAddress && a.port === b.port && a.protocol === b.protocol;
}

/** Host ports of sidecars and main containers, which run at the same time. */
function hostPorts({ spec }: Pod): readonly HostPort[] {
  return [...(spec.initContainers ?? []).filter(isSidecar), ...spec.containers].flatMap(({ ports = [] }) =>
    ports.flatMap(({ hostIP, hostPort, protocol }) =>
      hostPort ? [{ ip: hostIP || anyAddress, protocol: protocol || "TCP", port: hostPort }] : [],
    ),
  );
}

const conditionTypes = { memory: "MemoryPressure", disk: "DiskPressure", pid: "PIDPressure" } as const;
const memoryTaint: Taint = { key: "node.kubernetes.io/memory-pressure", effect: "NoSchedule" };

/** Rejects new pods under node pressure, in the kubelet's words; critical and static pods are admitted. Memory pressure alone rejects
 *  only BestEffort pods that do not tolerate its taint. Pods that have already started are not checked again, so restarting the agent
 *  evicts none.
 *  (kubelet, eviction/eviction_manager.go, Admit)
 *  @param pressure undefined while unknown: nothing is rejected.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions */
export function rejectUnderPressure(pod: Pod, pressure: Pressure | undefined): Rejection | undefined {
  const short = (["memory", "disk", "pid"] as const).filter((name) => pressure?.[name]);
  if (short.length === 0 || isCritical(pod) || pod.status?.startTime !== undefined) return undefined;
  if (short.join() === "memory" && toleratesMemoryPressure(pod)) return undefined;
  const conditions = short.map((name) => conditionTypes[name]).join(" ");
  return { reason: "Evicted", message: `The node had condition: [${conditions}]. ` };
}

function toleratesMemoryPressure({ spec, status }: Pod): boolean {
  if ((status?.qosClass ?? qosClass(spec)) !== "BestEffort") return true;
  return (spec.tolerations ?? []).some((toleration) => tolerates(toleration, memoryTaint));
}

/** Rejects a pod that requests an AppArmor profile if the target's kernel lacks AppArmor. Pods that have already started are not checked
 *  again.
 *  @param enabled true if the target's kernel has AppArmor. @see https://kubernetes.io/docs/tutorials/security/apparmor/ */
export function appArmorEnforced(pod: Pod, enabled: boolean): Rejection | undefined {
  if (enabled || (pod.status?.phase ?? "Pending") !== "Pending" || !requestsProfile(pod)) return undefined;
  return { reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host" };
}

/** True for any profile except Unconfined. */
function requestsProfile(pod: Pod): boolean {
  const types = [pod.spec, ...allContainers(pod).map(({ container }) => container)].map(
    ({ securityContext }) => securityContext?.appArmorProfile?.type ?? "Unconfined",
  );
  const annotated = Object.entries(pod.metadata.annotations ?? {}).filter(([key]) =>
    key.startsWith(appArmorAnnotation),
  );
  return types.some((type) => type !== "Unconfined") || annotated.some(([, value]) => value !== "unconfined");
}

/** supplementalGroupsPolicy Strict needs a runtime that can leave out the image's groups.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#supplementalgroupspolicy */
export const supplementalGroupsSupported: PodAdmitHandler = ({ pod, node }) => {
  if (pod.spec.securityContext?.supplementalGroupsPolicy !== "Strict") return undefined;
  if (node.status?.features?.supplementalGroupsPolicy === true) return undefined;
  return {
    reason: "SupplementalGroupsPolicyNotSupported",
    message: "SupplementalGroupsPolicy=Strict is not supported in this node",
  };
};

/** Rejects a pod that needs a feature that the node does not declare: a user namespace in the host's network.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-declared-features/ */
export function declaredFeaturesMatch({ spec: { hostNetwork, hostUsers } }: Pod): Rejection | undefined {
  if (!hostNetwork || hostUsers !== false) return undefined;
  const message = "Pod requires node features that are not available: UserNamespacesHostNetworkSupport";
  return { reason: "PodFeatureUnsupported", message };
}

/** Rejects a pod that does not tolerate the node's NoExecute taints; NoSchedule is left to the scheduler. Static pods tolerate all
 *  taints.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/ */
export const noExecuteTolerated: PodAdmitHandler = ({ pod, node }) => {
  const taints = (node.spec?.taints ?? []).filter(({ effect }) => effect === "NoExecute");
  const tolerations = pod.spec.tolerations ?? [];
  const untolerated = taints.some((taint) => !tolerations.some((toleration) => tolerates(toleration, taint)));
  if (!untolerated || isStaticPod(pod)) return undefined;
  return predicateFailed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
};

/** True if a toleration tolerates a taint. An empty effect or key matches all; the operators Lt and Gt are off by default and match
 *  nothing. */
function tolerates({ key, operator, value, effect }: Toleration, taint: Taint): boolean {
  if (effect && effect !== taint.effect) return false;
  if (key && key !== taint.key) return false;
  if (operator === "Exists") return true;
  return (!operator || operator === "Equal") && (value ?? "") === (taint.value ?? "");
}
