import type { Pod, PodStatus } from "../objects.ts";
import { isStaticPod } from "./containers.ts";
import { isEnding } from "./phase.ts";
import { isPlaceholder } from "./placeholder.ts";

/** Which pods of DaemonSets a node runs: none, those that are selected, or all. */
export type DaemonSets = "none" | "selected" | "all";

/** Annotation of a Node, written when it is registered: the choice where the configuration makes none. A Node without it runs all. */
export const daemonSetsAnnotation = "graftlet.dev/daemon-sets";

/** Annotation of a pod template: `"true"` selects its pods, `"false"` leaves them out that would be selected. */
export const runAnnotation = "graftlet.dev/run";

/** Folders below a node's root directory through which plugins serve it. */
const pluginFolders = ["plugins", "plugins_registry", "device-plugins"];

/** What a pod is on this node. It stays that for its life: a pod that is to be the other is deleted, and its DaemonSet makes another. */
export interface Standing {
  readonly is: "pod" | "placeholder";
  /** False for one that is to be the other. */
  readonly stays: boolean;
}

export interface StandingInput {
  readonly pod: Pod;
  /** The newest status known of it. */
  readonly status: PodStatus | undefined;
  /** The runtime has something of it. */
  readonly exists: boolean;
  /** Undefined while the node's choice is not known: what has begun stays as it is. */
  readonly choice: DaemonSets | undefined;
  /** The node's root directory. */
  readonly rootDir: string;
}

/** Decides whether a node runs a pod, or shows a placeholder for it. Pure. What the runtime has of a pod counts before what its status says:
 *  a mark alone makes no running pod a placeholder. A placeholder that has lost its DaemonSet stays one. */
export function standingOf({ pod, status, exists, choice, rootDir }: StandingInput): Standing {
  const runs = !isOfDaemonSet(pod) || isChosen(pod, choice, rootDir);
  if (isPlaceholder(status) && !exists) return { is: "placeholder", stays: !(runs && choice && isOfDaemonSet(pod)) };
  const hasBegun = exists || (status?.phase ?? "Pending") !== "Pending" || isEnding(pod);
  if (hasBegun) return { is: "pod", stays: runs || !choice };
  return { is: runs ? "pod" : "placeholder", stays: true };
}

function isChosen(pod: Pod, choice: DaemonSets | undefined, rootDir: string): boolean {
  return choice === "all" || (choice === "selected" && isSelected(pod, rootDir));
}

/** The pod of a DaemonSet of Kubernetes' own. @see https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/ */
function isOfDaemonSet(pod: Pod): boolean {
  const owner = pod.metadata.ownerReferences?.find(({ controller }) => controller);
  return owner?.kind === "DaemonSet" && owner.apiVersion.startsWith("apps/") && !isStaticPod(pod);
}

/** By its annotation, else because it mounts a folder of the node's plugins. */
function isSelected({ metadata, spec }: Pod, rootDir: string): boolean {
  const said = metadata.annotations?.[runAnnotation];
  if (said === "true" || said === "false") return said === "true";
  const folders = pluginFolders.map((name) => `${rootDir}/${name}/`);
  return (spec.volumes ?? []).some(({ hostPath }) => folders.some((folder) => `${hostPath?.path}/`.startsWith(folder)));
}
