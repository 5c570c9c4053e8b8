import type { Belonging } from "../seams/runtime.ts";

export interface FoundContainer {
  readonly id: string;
  readonly name: string;
  readonly running: boolean;
  /** Seconds between SIGTERM and SIGKILL. */
  readonly graceSeconds: number;
}

/** Everything of one pod on the target. */
export interface FoundPod {
  readonly uid: string;
  /** `namespace/name` when known on the target, else the UID. */
  readonly name: string;
  readonly containers: readonly FoundContainer[];
  readonly sandboxIds: readonly string[];
  /** Cgroups of the pod, from the top of the hierarchies. */
  readonly cgroups: readonly string[];
  /** Its directory below the root directory, without links; undefined when there is none. */
  readonly directory: string | undefined;
  /** Mounts in its directory, in the order of unmounting. */
  readonly mounts: readonly string[];
  /** Volumes of storage drivers are in its directory. */
  readonly ofDrivers: boolean;
  /** Directories of its logs. */
  readonly logs: readonly string[];
  /** Links to its logs for log collectors. */
  readonly links: readonly string[];
}

/** A place made to mount a volume for all of its pods, a file beside it, or a directory around. */
export interface StagedVolume {
  readonly path: string;
  readonly isMounted: boolean;
  readonly isFile?: true;
  /** A pod's device is bound there, and held open. */
  readonly isHeld?: true;
  /** A storage driver has to be asked to give up the volume. */
  readonly ofDriver?: true;
}

/** Everything that a node created on its target. */
export interface Findings {
  readonly pods: readonly FoundPod[];
  readonly belongings: readonly Belonging[];
  /** Where volumes are mounted for all pods, then the files beside and the directories around, the deepest first. */
  readonly staged: readonly StagedVolume[];
  /** Cgroups of QoS classes, the deepest first: they are removed when empty. */
  readonly tiers: readonly string[];
  /** The device plugins' registration socket, the checkpoint of allocated devices, the record of the last shutdown, and what the node
   *  wrote outside its root directory. */
  readonly files: readonly string[];
  /** The directory with records of pulled images; undefined when missing. */
  readonly pullRecords: string | undefined;
  /** Graftlet's own directory; undefined when missing. */
  readonly ownDirectory: string | undefined;
  /** Directories that the node created, the longest first: they are removed when empty. */
  readonly made: readonly string[];
  /** A sentence for each finding that is not known to be the node's. */
  readonly strangers: readonly string[];
}
