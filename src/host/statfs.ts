import type { FileSystemInfo } from "../seams/host.ts";

/** What statfs returns about a file system, in blocks. */
export interface StatfsCounts {
  /** Bytes. */
  readonly blockSize: number;
  readonly blocks: number;
  readonly free: number;
  /** Blocks that unprivileged users can still write. */
  readonly available: number;
  readonly inodes: number;
  readonly inodesFree: number;
}

/** Format for `stat -f -c`, whose output `parseStatfs` parses. */
export const statfsFormat = "%S %b %f %a %c %d";

/** Converts blocks to bytes. */
export function fileSystemInfo({
  blockSize,
  blocks,
  free,
  available,
  inodes,
  inodesFree,
}: StatfsCounts): FileSystemInfo {
  return {
    capacityBytes: blocks * blockSize,
    availableBytes: available * blockSize,
    usedBytes: (blocks - free) * blockSize,
    inodes,
    inodesFree,
  };
}

/** Parses the output of `stat -f` in that format; undefined if it is anything else. */
export function parseStatfs(output: string): FileSystemInfo | undefined {
  const numbers = output.trim().split(" ").map(Number);
  if (numbers.length !== 6 || numbers.some((number) => !Number.isFinite(number))) return undefined;
  const [blockSize = 0, blocks = 0, free = 0, available = 0, inodes = 0, inodesFree = 0] = numbers;
  return fileSystemInfo({ blockSize, blocks, free, available, inodes, inodesFree });
}
