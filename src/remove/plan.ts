import { outermostMount } from "../host/mounts.ts";
import type { OwnedResource } from "../seams/runtime.ts";
import type { Findings, FoundContainer, FoundPod } from "./findings.ts";

/** One item on the target to remove. */
export type RemovalItem =
  | { readonly kind: "container"; readonly container: FoundContainer; readonly pod: string }
  | { readonly kind: "sandbox"; readonly id: string; readonly pod: string }
  /** `outermost` is the outermost mount of the pod's directory that contains it, or the mount itself. */
  | { readonly kind: "mount"; readonly path: string; readonly outermost: string }
  /** Volumes that CSI drivers published to a pod, or staged for the node: their drivers are asked to release them. */
  | { readonly kind: "published"; readonly uid: string; readonly pod: string }
  | { readonly kind: "staged" }
  /** An iSCSI disk of the node, by its identity. */
  | { readonly kind: "iscsiDisk"; readonly id: string }
  /** A file to which a pod's device is bound, held open by a loop device. */
  | { readonly kind: "heldDevice"; readonly path: string }
  | { readonly kind: "cgroup"; readonly path: string }
  | { readonly kind: "directory"; readonly path: string }
  | { readonly kind: "link"; readonly path: string }
  | { readonly kind: "file"; readonly path: string }
  | { readonly kind: "belonging"; readonly belonging: OwnedResource }
  /** Removed only if empty; otherwise it stays, which is no failure. */
  | { readonly kind: "emptyCgroup"; readonly path: string }
  | { readonly kind: "emptyDirectory"; readonly path: string };

/** Items that are removed in parallel. */
export type RemovalStage = readonly RemovalItem[];

export interface RemovalPlan {
  /** First stages of pods with CSI volumes: they are terminated and their volumes unpublished while all other pods run, one of
   *  which may be the driver. */
  readonly csiPods: readonly { readonly name: string; readonly stages: readonly RemovalStage[] }[];
  /** Second stage: unstages the volumes of CSI drivers. */
  readonly unstaging: readonly RemovalItem[];
  /** Stages by pod: a stage starts when everything of the previous one is removed, so that nothing is deleted through a mount
   *  and an incompletely removed pod can be found again. */
  readonly pods: readonly { readonly name: string; readonly stages: readonly RemovalStage[] }[];
  /** Items shared by pods, removed after them in this order. */
  readonly staged: readonly RemovalStage[];
  /** Removed after the pods, independently of each other. */
  readonly ownedResources: readonly RemovalItem[];
  /** Removed last, and only if everything else is gone: without graftlet's own directory the rest could not be found. */
  readonly last: readonly RemovalItem[];
}

/** Orders the removal of a node's items. Pure. */
export function removalPlan(findings: Findings): RemovalPlan {
  const { pullRecords, ownDirectory } = findings;
  const directories = [pullRecords, ownDirectory].filter((path) => path !== undefined);
  const staged = findings.staged.filter(({ isHeld, iscsiDisk }) => !isHeld && iscsiDisk === undefined);
  const iscsiDisks = new Set(findings.staged.flatMap(({ iscsiDisk }) => iscsiDisk ?? []));
  return {
    csiPods: findings.pods
      .filter(({ hasCsiVolumes }) => hasCsiVolumes)
      .map((pod) => ({ name: pod.name, stages: withoutEmpty(csiStagesOf(pod)) })),
    unstaging: findings.staged.some(({ isCsi }) => isCsi) ? [{ kind: "staged" }] : [],
    pods: findings.pods.map((pod) => ({ name: pod.name, stages: withoutEmpty(stagesOf(pod)) })),
    staged: withoutEmpty([
      findings.staged.filter(({ isHeld }) => isHeld).map(({ path }): RemovalItem => ({ kind: "heldDevice", path })),
      // One after the other: the last disk of a target ends the session.
      ...[...iscsiDisks].map((id): RemovalStage => [{ kind: "iscsiDisk", id }]),
      staged
        .filter(({ isMounted }) => isMounted)
        .map(({ path }): RemovalItem => ({ kind: "mount", path, outermost: path })),
      ...staged.map(({ path, isFile }): RemovalStage => [{ kind: isFile ? "file" : "emptyDirectory", path }]),
    ]),
    ownedResources: findings.ownedResources.map((belonging) => ({ kind: "belonging", belonging })),
    last: [
      ...findings.files.map((path): RemovalItem => ({ kind: "file", path })),
      ...findings.qosCgroups.map((path): RemovalItem => ({ kind: "emptyCgroup", path })),
      ...directories.map((path): RemovalItem => ({ kind: "directory", path })),
      ...findings.createdDirectories.map((path): RemovalItem => ({ kind: "emptyDirectory", path })),
    ],
  };
}

function withoutEmpty(stages: readonly RemovalStage[]): readonly RemovalStage[] {
  return stages.filter((stage) => stage.length > 0);
}

function terminationStages({ name, containers, sandboxIds }: FoundPod): RemovalStage[] {
  return [
    containers.map((container) => ({ kind: "container", container, pod: name })),
    sandboxIds.map((id) => ({ kind: "sandbox", id, pod: name })),
  ];
}

/** Unmounts one after another, nested mounts first. */
function unmountStages({ mounts }: FoundPod, wanted: (path: string) => boolean): RemovalStage[] {
  return mounts.filter(wanted).map((path) => [{ kind: "mount", path, outermost: outermostMount(path, mounts) }]);
}

/** Terminates a pod and unpublishes its CSI volumes, after unmounting their subPath mounts. */
function csiStagesOf(pod: FoundPod): RemovalStage[] {
  const { name, uid } = pod;
  return [
    ...terminationStages(pod),
    ...unmountStages(pod, isSubPathMount(pod)),
    [{ kind: "published", uid, pod: name }],
  ];
}

function isSubPathMount({ directory }: FoundPod): (path: string) => boolean {
  return (path) => path.startsWith(`${directory}/volume-subpaths/`);
}

function stagesOf(pod: FoundPod): RemovalStage[] {
  const isUnmounted = pod.hasCsiVolumes ? isSubPathMount(pod) : () => false;
  return [
    ...(pod.hasCsiVolumes ? [] : terminationStages(pod)),
    ...unmountStages(pod, (path) => !isUnmounted(path)),
    [
      ...pod.cgroups.map((path): RemovalItem => ({ kind: "cgroup", path })),
      ...pod.links.map((path): RemovalItem => ({ kind: "link", path })),
    ],
    pod.logs.map((path) => ({ kind: "directory", path })),
    pod.directory === undefined ? [] : [{ kind: "directory", path: pod.directory }],
  ];
}

/** Everything that a plan removes, in order. */
export function itemsOf({
  csiPods,
  unstaging,
  pods,
  staged,
  ownedResources,
  last,
}: RemovalPlan): readonly RemovalItem[] {
  const [first, then] = [csiPods, pods].map((all) => all.flatMap(({ stages }) => stages.flat()));
  return [...(first ?? []), ...unstaging, ...(then ?? []), ...staged.flat(), ...ownedResources, ...last];
}

/** Describes an item in the list shown before the removal. */
export function previewLine(item: RemovalItem): string {
  const onlyEmpty = item.kind === "emptyCgroup" || item.kind === "emptyDirectory";
  return onlyEmpty ? `${describeItem(item)}, if empty` : describeItem(item);
}

export function describeItem(item: RemovalItem): string {
  switch (item.kind) {
    case "container": {
      const { name, id, running } = item.container;
      return `container ${name} of pod ${item.pod}, ${running ? "running" : "ended"} (${shortened(id)})`;
    }
    case "sandbox":
      return `sandbox of pod ${item.pod} (${shortened(item.id)})`;
    case "published":
      return `CSI volumes of pod ${item.pod}`;
    case "staged":
      return "staged CSI volumes";
    case "iscsiDisk":
      return `iSCSI disk ${quoted(item.id)}`;
    case "belonging":
      return item.belonging.name;
    case "emptyCgroup":
      return `cgroup ${quoted(item.path)}`;
    case "emptyDirectory":
      return `directory ${quoted(item.path)}`;
    case "heldDevice":
      return `device ${quoted(item.path)}`;
    case "mount":
    case "cgroup":
    case "directory":
    case "link":
    case "file":
      return `${item.kind} ${quoted(item.path)}`;
  }
}

/** A path, quoted if it contains characters that are not printable. */
function quoted(path: string): string {
  return /^[\x21-\x7e]+$/.test(path) ? path : JSON.stringify(path);
}

function shortened(id: string): string {
  return id.slice(0, 13);
}
