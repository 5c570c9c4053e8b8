import type { Belonging } from "../seams/runtime.ts";

export interface FoundContainer {
  readonly id: string;
  readonly name: string;
  readonly running: boolean;
  /** Seconds between SIGTERM and SIGKILL. */
  readonly graceSeconds: number;
}

/** All that is left of one pod on the target. */
export interface FoundPod {
  readonly uid: string;
  /** `namespace/name` where something on the target tells, else the UID. */
  readonly name: string;
  readonly containers: readonly FoundContainer[];
  readonly sandboxIds: readonly string[];
  /** Cgroups of the pod, from the top of the hierarchies. */
  readonly cgroups: readonly string[];
  /** Its directory below the root directory, without links; undefined when there is none. */
  readonly directory: string | undefined;
  /** Mounts in its directory, in the order of unmounting. */
  readonly mounts: readonly string[];
  /** Directories of its logs. */
  readonly logs: readonly string[];
  /** Links by which log collectors find its logs. */
  readonly links: readonly string[];
}

/** All that a node put on its target. */
export interface Findings {
  readonly pods: readonly FoundPod[];
  readonly belongings: readonly Belonging[];
  /** Cgroups of quality of service classes, those below before those above: they go when nothing is left in them. */
  readonly tiers: readonly string[];
  /** The device plugins' registration socket, and the checkpoint of allocated devices. */
  readonly files: readonly string[];
  /** Graftlet's own directory; undefined where it is not. */
  readonly ownDirectory: string | undefined;
  /** Directories that the node made, the longest first: they go when they are empty. */
  readonly made: readonly string[];
  /** A sentence each: what was found and is not known to be the node's. */
  readonly strangers: readonly string[];
}
