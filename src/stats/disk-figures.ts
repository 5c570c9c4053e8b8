import type { FileSystemInfo } from "../seams/host.ts";

/** A file system, and how much of it something takes. */
export interface DiskUse extends FileSystemInfo {
  /** When it was measured, milliseconds since the epoch. */
  readonly at: number;
  /** Path of its device; empty where it is not known. */
  readonly device: string;
  readonly usedBytes?: number;
  readonly inodesUsed?: number;
}

export interface VolumeUse {
  readonly name: string;
  readonly use: DiskUse;
}

export interface PodDisk {
  readonly volumes: readonly VolumeUse[];
  /** What containers wrote to their own layers, and their logs, by name. */
  readonly layers: ReadonlyMap<string, DiskUse>;
  readonly logs: ReadonlyMap<string, DiskUse>;
  /** All that counts as the pod's use of the node's disk. */
  readonly ephemeral: DiskUse;
}

/** What is on the target's disks. */
export interface DiskFigures {
  /** Of the root directory. */
  readonly node: DiskUse;
  /** Where the runtime keeps images, and containers' layers; undefined where it does not tell. */
  readonly images?: DiskUse;
  readonly layers?: DiskUse;
  /** By UID. */
  readonly pods: ReadonlyMap<string, PodDisk>;
}

/** All that is taken of a file system. */
export function whole(space: Omit<DiskUse, "usedBytes" | "inodesUsed">): DiskUse {
  const { capacityBytes, availableBytes, inodes, inodesFree } = space;
  return { ...space, usedBytes: capacityBytes - availableBytes, inodesUsed: inodes - inodesFree };
}

/** The sum of what is known, as taken of one file system. */
export function sumOn(space: DiskUse, parts: readonly (DiskUse | undefined)[]): DiskUse {
  const { usedBytes: _bytes, inodesUsed: _inodes, ...rest } = space;
  const sum = (read: (part: DiskUse) => number | undefined) =>
    parts.reduce((total, part) => total + ((part && read(part)) ?? 0), 0);
  return { ...rest, usedBytes: sum(({ usedBytes }) => usedBytes), inodesUsed: sum(({ inodesUsed }) => inodesUsed) };
}
