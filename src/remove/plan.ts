import { outermostOf } from "../host/mounts.ts";
import type { Belonging } from "../seams/runtime.ts";
import type { Findings, FoundContainer, FoundPod } from "./findings.ts";

/** One thing on the target to remove. */
export type Thing =
  | { readonly is: "container"; readonly container: FoundContainer; readonly pod: string }
  | { readonly is: "sandbox"; readonly id: string; readonly pod: string }
  /** `outermost` is the mount in the pod's directory that it is in, or itself. */
  | { readonly is: "mount"; readonly path: string; readonly outermost: string }
  /** What storage drivers published to a pod, or staged for the node: the drivers are asked to take it back. */
  | { readonly is: "published"; readonly uid: string; readonly pod: string }
  | { readonly is: "staged" }
  /** A file to which a pod's device is bound, and which a loop device holds. */
  | { readonly is: "heldDevice"; readonly path: string }
  | { readonly is: "cgroup"; readonly path: string }
  | { readonly is: "directory"; readonly path: string }
  | { readonly is: "link"; readonly path: string }
  | { readonly is: "file"; readonly path: string }
  | { readonly is: "belonging"; readonly belonging: Belonging }
  /** Removed only when empty; a non-empty one is no failure. */
  | { readonly is: "emptyCgroup"; readonly path: string }
  | { readonly is: "emptyDirectory"; readonly path: string };

/** Things that are removed side by side. */
export type Tier = readonly Thing[];

export interface Plan {
  /** The beginning of pods with volumes of storage drivers: they end, and their volumes are given back, while all other pods run.
   *  One of those may be the driver. */
  readonly ofDrivers: readonly { readonly name: string; readonly tiers: readonly Tier[] }[];
  /** What drivers staged for the node, after that. */
  readonly unstaging: readonly Thing[];
  /** Tiers by pod: a tier begins when everything in the one before is removed, so that nothing is deleted through a mount and
   *  an incompletely removed pod can be found again. */
  readonly pods: readonly { readonly name: string; readonly tiers: readonly Tier[] }[];
  /** Things that pods share; removed after them, in this order. */
  readonly staged: readonly Tier[];
  /** Removed after the pods, each by itself. */
  readonly belongings: readonly Thing[];
  /** Removed at the end, and only when everything before is gone: without graftlet's own directory the rest could not be
   *  found. */
  readonly last: readonly Thing[];
}

/** The order in which a node's things are removed. Pure. */
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

/** Mounts one after another: those below have to go first. */
function mountsOf({ mounts }: FoundPod, wanted: (path: string) => boolean): Tier[] {
  return mounts.filter(wanted).map((path) => [{ is: "mount", path, outermost: outermostOf(path, mounts) }]);
}

/** Ends a pod and gives its volumes back to their drivers; parts of volumes, which are mounts of them, go before. */
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

/** Everything that a plan removes, in its order. */
export function thingsOf({ ofDrivers, unstaging, pods, staged, belongings, last }: Plan): readonly Thing[] {
  const [first, then] = [ofDrivers, pods].map((all) => all.flatMap(({ tiers }) => tiers.flat()));
  return [...(first ?? []), ...unstaging, ...(then ?? []), ...staged.flat(), ...belongings, ...last];
}

/** A thing as a line of the list that is shown beforehand. */
export function lineOf(thing: Thing): string {
  const onlyEmpty = thing.is === "emptyCgroup" || thing.is === "emptyDirectory";
  return onlyEmpty ? `${nameOf(thing)}, if nothing else is in it` : nameOf(thing);
}

/** Kind and name of a thing. */
export function nameOf(thing: Thing): string {
  switch (thing.is) {
    case "container": {
      const { name, id, running } = thing.container;
      return `container ${name} of pod ${thing.pod}, ${running ? "running" : "ended"} (${shortened(id)})`;
    }
    case "sandbox":
      return `sandbox of pod ${thing.pod} (${shortened(thing.id)})`;
    case "published":
      return `volumes of storage drivers in pod ${thing.pod}`;
    case "staged":
      return "volumes of storage drivers on the node";
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

/** A path as it is, quoted when it has characters that a line would not show. */
function quoted(path: string): string {
  return /^[\x21-\x7e]+$/.test(path) ? path : JSON.stringify(path);
}

function shortened(id: string): string {
  return id.slice(0, 13);
}
