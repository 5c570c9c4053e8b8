import type { FileSystemInfo } from "../seams/host.ts";

/** A file system, and the usage of one consumer. */
export interface DiskUse extends Omit<FileSystemInfo, "usedBytes"> {
  /** Time of measurement, milliseconds since the epoch. */
  readonly at: number;
  /** Path of the file system's device; empty if unknown. */
  readonly device: string;
  readonly usedBytes?: number;
  readonly inodesUsed?: number;
  /** Condition of a volume as reported by its CSI driver. */
  readonly condition?: { readonly abnormal: boolean; readonly message: string };
}

export interface VolumeDiskUse {
  readonly name: string;
  readonly use: DiskUse;
  /** True if the volume is on the node's disk and counts as the pod's ephemeral storage. */
  readonly ephemeral?: boolean;
  /** Name of the volume's claim, in the pod's namespace. */
  readonly claim?: ClaimName;
}

export interface ClaimName {
  readonly name: string;
  readonly namespace: string;
}

export interface PodDisk {
  readonly volumes: readonly VolumeDiskUse[];
  /** Containers' writable layers and logs, by name. */
  readonly layers: ReadonlyMap<string, DiskUse>;
  readonly logs: ReadonlyMap<string, DiskUse>;
  /** The pod's total ephemeral storage, without files of terminated containers. (kubelet) */
  readonly ephemeral: DiskUse;
}

/** A pod to measure, with the names of its running containers. */
export interface MeasuredPod {
  readonly uid: string;
  readonly running: readonly string[];
}

/** Usage of the target's disks. */
export interface DiskStats {
  /** File system of the root directory. */
  readonly node: DiskUse;
  /** File systems of the runtime's images and container layers; undefined if the runtime does not report them. */
  readonly images?: DiskUse;
  readonly layers?: DiskUse;
  /** File systems of the root directory and of the runtime's images and layers, one per device, with their total usage. */
  readonly fileSystems: readonly DiskUse[];
  /** Disk usage of pods, by UID. */
  readonly pods: ReadonlyMap<string, PodDisk>;
}

/** A file system's total usage. @param at of the measurement, milliseconds since the epoch. */
export function totalUse(space: FileSystemInfo, at: number): DiskUse & { readonly usedBytes: number } {
  return { ...space, at, device: "", inodesUsed: space.inodes - space.inodesFree };
}

/** Sums the known parts as usage of one file system. */
export function sumUse(space: DiskUse, parts: readonly (DiskUse | undefined)[]): DiskUse {
  const { usedBytes: _bytes, inodesUsed: _inodes, ...rest } = space;
  const sum = (read: (part: DiskUse) => number | undefined) =>
    parts.reduce((total, part) => total + ((part && read(part)) ?? 0), 0);
  return { ...rest, usedBytes: sum(({ usedBytes }) => usedBytes), inodesUsed: sum(({ inodesUsed }) => inodesUsed) };
}
