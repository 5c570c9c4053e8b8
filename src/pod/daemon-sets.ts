import type { Node, Pod, PodStatus } from "../objects.ts";
import { isStaticPod } from "./containers.ts";
import { isEnding } from "./phase.ts";
import { isPlaceholder } from "./placeholder.ts";

/** Which DaemonSet pods a node runs: none, selected ones, or all. */
export type DaemonSets = "none" | "selected" | "all";

/** Annotation of a Node, written at registration: the setting if the configuration has none. A Node without it runs all. */
export const daemonSetsAnnotation = "graftlet.dev/daemon-sets";

/** Annotation of a pod template: `"true"` selects its pods, `"false"` excludes pods that would be selected. */
const runAnnotation = "graftlet.dev/run";

/** Directories below a node's root directory that node plugins use. */
const pluginDirectories = ["plugins", "plugins_registry", "device-plugins"];

/** Whether the node runs a pod or shows a placeholder for it. The decision never changes for a pod: to change it, the pod is
 *  deleted, and its DaemonSet creates another one. */
export interface DaemonSetDecision {
  readonly kind: "pod" | "placeholder";
  /** False if the pod must be replaced to change this. */
  readonly isFinal: boolean;
}

export interface DaemonSetDecisionInput {
  readonly pod: Pod;
  /** The newest known status. */
  readonly status: PodStatus | undefined;
  /** The runtime has a sandbox or container of the pod. */
  readonly existsInRuntime: boolean;
  /** The node's setting; undefined while unknown: started pods stay as they are. */
  readonly setting: DaemonSets | undefined;
  /** The node's root directory. */
  readonly rootDir: string;
}

/** Decides whether a node runs a pod, or shows a placeholder for it. Pure. What the runtime has of a pod takes precedence over its
 *  status: a status alone does not turn a running pod into a placeholder. A placeholder that has lost its DaemonSet stays one. */
export function decideDaemonSetPod({
  pod,
  status,
  existsInRuntime,
  setting,
  rootDir,
}: DaemonSetDecisionInput): DaemonSetDecision {
  const runs = !isDaemonSetPod(pod) || isRunHere(pod, setting, rootDir);
  if (isPlaceholder(status) && !existsInRuntime)
    return { kind: "placeholder", isFinal: !(runs && setting && isDaemonSetPod(pod)) };
  const hasStarted = existsInRuntime || (status?.phase ?? "Pending") !== "Pending" || isEnding(pod);
  if (hasStarted) return { kind: "pod", isFinal: runs || !setting };
  return { kind: runs ? "pod" : "placeholder", isFinal: true };
}

function isRunHere(pod: Pod, choice: DaemonSets | undefined, rootDir: string): boolean {
  return choice === "all" || (choice === "selected" && isSelected(pod, rootDir));
}

/** True for a pod of an apps/v1 DaemonSet. @see https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/ */
function isDaemonSetPod(pod: Pod): boolean {
  const owner = pod.metadata.ownerReferences?.find(({ controller }) => controller);
  return owner?.kind === "DaemonSet" && owner.apiVersion.startsWith("apps/") && !isStaticPod(pod);
}

/** True if the annotation selects the pod or, without one, if it mounts a plugin directory of the node. */
function isSelected({ metadata, spec }: Pod, rootDir: string): boolean {
  const annotation = metadata.annotations?.[runAnnotation];
  if (annotation === "true" || annotation === "false") return annotation === "true";
  const folders = pluginDirectories.map((name) => `${rootDir}/${name}/`);
  return (spec.volumes ?? []).some(({ hostPath }) => folders.some((folder) => `${hostPath?.path}/`.startsWith(folder)));
}

/** The setting in the Node's annotation; `all` without one. */
export function annotatedDaemonSets({ metadata }: Node): DaemonSets {
  const annotation = metadata.annotations?.[daemonSetsAnnotation];
  return annotation === "none" || annotation === "selected" ? annotation : "all";
}
