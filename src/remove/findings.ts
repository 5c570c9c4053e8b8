import type { OwnedResource } from "../seams/runtime.ts";

export interface FoundContainer {
  readonly id: string;
  readonly name: string;
  readonly running: boolean;
  /** Seconds between SIGTERM and SIGKILL. */
  readonly graceSeconds: number;
}

/** Everything of one pod found on the target. */
export interface FoundPod {
  readonly uid: string;
  /** `namespace/name` if known on the target, otherwise the UID. */
  readonly name: string;
  readonly containers: readonly FoundContainer[];
  readonly sandboxIds: readonly string[];
  /** Cgroups of the pod, in all hierarchies. */
  readonly cgroups: readonly string[];
  /** The pod's directory below the root directory, with links resolved; undefined if it does not exist. */
  readonly directory: string | undefined;
  /** Mounts in the pod's directory, in unmount order. */
  readonly mounts: readonly string[];
  /** True if the pod's directory contains CSI volumes. */
  readonly hasCsiVolumes: boolean;
  readonly logs: readonly string[];
  /** Symbolic links to the pod's logs, for log collectors. */
  readonly links: readonly string[];
}

/** A staging path, a file next to one, or a directory around it. */
export interface StagedVolume {
  readonly path: string;
  readonly isMounted: boolean;
  readonly isFile?: true;
  /** A pod's block device is bind-mounted on this file, and held open. */
  readonly isHeld?: true;
  /** The volume has to be unstaged by its CSI driver. */
  readonly isCsi?: true;
  /** Identity of the iSCSI disk whose directory this is; the removal also logs out of the disk's iSCSI target. */
  readonly iscsiDisk?: string;
}

/** Everything that a node created on its target. */
export interface Findings {
  readonly pods: readonly FoundPod[];
  readonly ownedResources: readonly OwnedResource[];
  /** Staging paths, then the files next to them and the directories around them, the deepest first. */
  readonly staged: readonly StagedVolume[];
  /** Cgroups of QoS classes, the deepest first: removed if empty. */
  readonly qosCgroups: readonly string[];
  /** The registration socket and the checkpoint of the device manager, the state file of the last shutdown, and files outside
   *  the root directory. */
  readonly files: readonly string[];
  /** The directory with the records of pulled images; undefined if missing. */
  readonly pullRecords: string | undefined;
  /** graftlet's own directory; undefined if missing. */
  readonly ownDirectory: string | undefined;
  /** Directories that the node created, the longest first: removed if empty. */
  readonly createdDirectories: readonly string[];
  /** A sentence for each finding that may not belong to the node. */
  readonly unowned: readonly string[];
}
