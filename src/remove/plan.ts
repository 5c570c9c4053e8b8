import { outermostOf } from "../host/mounts.ts";
import type { Belonging } from "../seams/runtime.ts";
import type { Findings, FoundContainer, FoundPod } from "./findings.ts";

/** One thing on the target to remove. */
export type Thing =
  | { readonly is: "container"; readonly container: FoundContainer; readonly pod: string }
  | { readonly is: "sandbox"; readonly id: string; readonly pod: string }
  /** `outermost` is the mount in the pod's directory that it is in, or itself. */
  | { readonly is: "mount"; readonly path: string; readonly outermost: string }
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
  const { ownDirectory } = findings;
  return {
    pods: findings.pods.map((pod) => ({ name: pod.name, tiers: tiersOf(pod).filter((tier) => tier.length > 0) })),
    staged: [
      findings.staged
        .filter(({ isMounted }) => isMounted)
        .map(({ path }): Thing => ({ is: "mount", path, outermost: path })),
      ...findings.staged.map(({ path, isFile }): Tier => [{ is: isFile ? "file" : "emptyDirectory", path }]),
    ].filter((tier) => tier.length > 0),
    belongings: findings.belongings.map((belonging) => ({ is: "belonging", belonging })),
    last: [
      ...findings.files.map((path): Thing => ({ is: "file", path })),
      ...findings.tiers.map((path): Thing => ({ is: "emptyCgroup", path })),
      ...(ownDirectory === undefined ? [] : [{ is: "directory", path: ownDirectory } as const]),
      ...findings.made.map((path): Thing => ({ is: "emptyDirectory", path })),
    ],
  };
}

function tiersOf(pod: FoundPod): Tier[] {
  const { name } = pod;
  return [
    pod.containers.map((container) => ({ is: "container", container, pod: name })),
    pod.sandboxIds.map((id) => ({ is: "sandbox", id, pod: name })),
    // One after another: those below have to go first.
    ...pod.mounts.map((path): Tier => [{ is: "mount", path, outermost: outermostOf(path, pod.mounts) }]),
    [
      ...pod.cgroups.map((path): Thing => ({ is: "cgroup", path })),
      ...pod.links.map((path): Thing => ({ is: "link", path })),
    ],
    pod.logs.map((path) => ({ is: "directory", path })),
    pod.directory === undefined ? [] : [{ is: "directory", path: pod.directory }],
  ];
}

/** Everything that a plan removes, in its order. */
export function thingsOf({ pods, staged, belongings, last }: Plan): readonly Thing[] {
  return [...pods.flatMap(({ tiers }) => tiers.flat()), ...staged.flat(), ...belongings, ...last];
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
    case "belonging":
      return thing.belonging.name;
    case "emptyCgroup":
      return `cgroup ${quoted(thing.path)}`;
    case "emptyDirectory":
      return `directory ${quoted(thing.path)}`;
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
