import { outermostMount } from "../host/mounts.ts";
import type { Belonging } from "../seams/runtime.ts";
import type { Findings, FoundContainer, FoundPod } from "./findings.ts";

/** One item on the target to remove. */
export type Thing =
  | { readonly is: "container"; readonly container: FoundContainer; readonly pod: string }
  | { readonly is: "sandbox"; readonly id: string; readonly pod: string }
  /** `outermost` is the outermost mount of the pod's directory that contains it, or the mount itself. */
  | { readonly is: "mount"; readonly path: string; readonly outermost: string }
  /** Volumes that CSI drivers published to a pod, or staged for the node: their drivers are asked to release them. */
  | { readonly is: "published"; readonly uid: string; readonly pod: string }
  | { readonly is: "staged" }
  /** A file to which a pod's device is bound, held open by a loop device. */
  | { readonly is: "heldDevice"; readonly path: string }
  | { readonly is: "cgroup"; readonly path: string }
  | { readonly is: "directory"; readonly path: string }
  | { readonly is: "link"; readonly path: string }
  | { readonly is: "file"; readonly path: string }
  | { readonly is: "belonging"; readonly belonging: Belonging }
  /** Removed only if empty; otherwise it stays, which is no failure. */
  | { readonly is: "emptyCgroup"; readonly path: string }
  | { readonly is: "emptyDirectory"; readonly path: string };

/** Items that are removed in parallel. */
export type Tier = readonly Thing[];

export interface Plan {
  /** First stages of pods with CSI volumes: they are terminated and their volumes unpublished while all other pods run, one of
   *  which may be the driver. */
  readonly ofDrivers: readonly { readonly name: string; readonly tiers: readonly Tier[] }[];
  /** Unstages the volumes of CSI drivers, after that. */
  readonly unstaging: readonly Thing[];
  /** Stages by pod: a stage starts when everything of the previous one is removed, so that nothing is deleted through a mount
   *  and an incompletely removed pod can be found again. */
  readonly pods: readonly { readonly name: string; readonly tiers: readonly Tier[] }[];
  /** Items shared by pods, removed after them in this order. */
  readonly staged: readonly Tier[];
  /** Removed after the pods, independently of each other. */
  readonly belongings: readonly Thing[];
  /** Removed last, and only if everything else is gone: without graftlet's own directory the rest could not be found. */
  readonly last: readonly Thing[];
}

/** Orders the removal of a node's items. Pure. */
export function removalPlan(findings: Findings): Plan {
  const { pullRecords, ownDirectory } = findings;
  const directories = [pullRecords, ownDirectory].filter((path) => path !== undefined);
  const staged = findings.staged.filter(({ isHeld }) => !isHeld);
  return {
    ofDrivers: findings.pods
      .filter(({ ofDrivers }) => ofDrivers)
      .map((pod) => ({ name: pod.name, tiers: filled(beginningOf(pod)) })),
    unstaging: findings.staged.some(({ ofDriver }) => ofDriver) ? [{ is: "staged" }] : [],
    pods: findings.pods.map((pod) => ({ name: pod.name, tiers: filled(tiersOf(pod)) })),
    staged: filled([
      findings.staged.filter(({ isHeld }) => isHeld).map(({ path }): Thing => ({ is: "heldDevice", path })),
      staged.filter(({ isMounted }) => isMounted).map(({ path }): Thing => ({ is: "mount", path, outermost: path })),
      ...staged.map(({ path, isFile }): Tier => [{ is: isFile ? "file" : "emptyDirectory", path }]),
    ]),
    belongings: findings.belongings.map((belonging) => ({ is: "belonging", belonging })),
    last: [
      ...findings.files.map((path): Thing => ({ is: "file", path })),
      ...findings.tiers.map((path): Thing => ({ is: "emptyCgroup", path })),
      ...directories.map((path): Thing => ({ is: "directory", path })),
      ...findings.made.map((path): Thing => ({ is: "emptyDirectory", path })),
    ],
  };
}

function filled(tiers: readonly Tier[]): readonly Tier[] {
  return tiers.filter((tier) => tier.length > 0);
}

function processesOf({ name, containers, sandboxIds }: FoundPod): Tier[] {
  return [
    containers.map((container) => ({ is: "container", container, pod: name })),
    sandboxIds.map((id) => ({ is: "sandbox", id, pod: name })),
  ];
}

/** Unmounts one after another, nested mounts first. */
function mountsOf({ mounts }: FoundPod, wanted: (path: string) => boolean): Tier[] {
  return mounts.filter(wanted).map((path) => [{ is: "mount", path, outermost: outermostMount(path, mounts) }]);
}

/** Terminates a pod and unpublishes its CSI volumes, after unmounting their subPath mounts. */
function beginningOf(pod: FoundPod): Tier[] {
  const { name, uid } = pod;
  return [...processesOf(pod), ...mountsOf(pod, isPart(pod)), [{ is: "published", uid, pod: name }]];
}

function isPart({ directory }: FoundPod): (path: string) => boolean {
  return (path) => path.startsWith(`${directory}/volume-subpaths/`);
}

function tiersOf(pod: FoundPod): Tier[] {
  const isDone = pod.ofDrivers ? isPart(pod) : () => false;
  return [
    ...(pod.ofDrivers ? [] : processesOf(pod)),
    ...mountsOf(pod, (path) => !isDone(path)),
    [
      ...pod.cgroups.map((path): Thing => ({ is: "cgroup", path })),
      ...pod.links.map((path): Thing => ({ is: "link", path })),
    ],
    pod.logs.map((path) => ({ is: "directory", path })),
    pod.directory === undefined ? [] : [{ is: "directory", path: pod.directory }],
  ];
}

/** Everything that a plan removes, in order. */
export function thingsOf({ ofDrivers, unstaging, pods, staged, belongings, last }: Plan): readonly Thing[] {
  const [first, then] = [ofDrivers, pods].map((all) => all.flatMap(({ tiers }) => tiers.flat()));
  return [...(first ?? []), ...unstaging, ...(then ?? []), ...staged.flat(), ...belongings, ...last];
}

/** Describes an item in the list shown before the removal. */
export function lineOf(thing: Thing): string {
  const onlyEmpty = thing.is === "emptyCgroup" || thing.is === "emptyDirectory";
  return onlyEmpty ? `${nameOf(thing)}, if empty` : nameOf(thing);
}

/** Kind and name of an item. */
export function nameOf(thing: Thing): string {
  switch (thing.is) {
    case "container": {
      const { name, id, running } = thing.container;
      return `container ${name} of pod ${thing.pod}, ${running ? "running" : "ended"} (${shortened(id)})`;
    }
    case "sandbox":
      return `sandbox of pod ${thing.pod} (${shortened(thing.id)})`;
    case "published":
      return `CSI volumes of pod ${thing.pod}`;
    case "staged":
      return "staged CSI volumes";
    case "belonging":
      return thing.belonging.name;
    case "emptyCgroup":
      return `cgroup ${quoted(thing.path)}`;
    case "emptyDirectory":
      return `directory ${quoted(thing.path)}`;
    case "heldDevice":
      return `device ${quoted(thing.path)}`;
    case "mount":
    case "cgroup":
    case "directory":
    case "link":
    case "file":
      return `${thing.is} ${quoted(thing.path)}`;
  }
}

/** A path, quoted if it contains characters that are not printable. */
function quoted(path: string): string {
  return /^[\x21-\x7e]+$/.test(path) ? path : JSON.stringify(path);
}

function shortened(id: string): string {
  return id.slice(0, 13);
}
