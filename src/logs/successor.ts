import { posix } from "node:path";
import { unlessGone } from "../lib/errors.ts";
import type { FileInfo, HostFile } from "../seams/host.ts";
import { decompressed } from "./compressed-file.ts";
import { type LogHost, openLog } from "./file.ts";
import { rotatedLogs } from "./rotated-files.ts";

/** One file of a log. */
export interface LogPart {
  readonly path: string;
  readonly inode: number;
  /** Time of its rotation as in its name, which stays when it is compressed; absent for the current file and for Docker's. */
  readonly rotatedAt?: string;
  readonly isCompressed?: boolean;
}

/** A file that is being read: its inode and time tell it, and the time of its rotation, where that is known. */
type Mine = Pick<FileInfo, "inode" | "modifiedAt"> & Pick<LogPart, "rotatedAt">;

/** The file that was begun after this one: a slow reader may be several rotations behind. Compressed files keep the time of their last
 *  line, so that the file that was the current one when it was opened is told by its age.
 *  @param path of the current file. */
export async function successor(
  host: LogHost,
  path: string,
  { mine, current }: { readonly mine: Mine; readonly current: FileInfo },
  signal: AbortSignal,
): Promise<LogPart> {
  let next: LogPart = { path, inode: current.inode };
  let oldestYounger = next;
  for await (const { modifiedAt, ...part } of rotatedParts(host, path, signal)) {
    if (isSame(part, mine)) return next;
    next = part;
    if (isYounger({ ...part, modifiedAt }, mine)) oldestYounger = part;
  }
  return oldestYounger;
}

/** Rotated files of a log that are there, newest first. */
async function* rotatedParts(
  host: LogHost,
  path: string,
  signal: AbortSignal,
): AsyncGenerator<LogPart & Pick<FileInfo, "modifiedAt">> {
  const directory = posix.dirname(path);
  const names = (await host.fs.list(directory, signal)).map(({ name }) => name);
  for (const { name, ...log } of rotatedLogs(names, posix.basename(path))) {
    const older = `${directory}/${name}`;
    const found = await unlessGone(host.fs.lstat(older, signal));
    if (found) yield { path: older, inode: found.inode, modifiedAt: found.modifiedAt, ...log };
  }
}

/** The time tells, where both have one: the inode of a file that is gone may be another's by now. */
function isSame(part: LogPart, { inode, rotatedAt }: Pick<LogPart, "inode" | "rotatedAt">): boolean {
  const timed = part.rotatedAt !== undefined && rotatedAt !== undefined;
  return timed ? part.rotatedAt === rotatedAt : part.inode === inode;
}

function isYounger({ rotatedAt, modifiedAt }: Mine, mine: Mine): boolean {
  if (rotatedAt !== undefined && mine.rotatedAt !== undefined) return rotatedAt > mine.rotatedAt;
  return seconds(modifiedAt) > seconds(mine.modifiedAt);
}

/** Some hosts tell times in whole seconds. */
function seconds(milliseconds: number): number {
  return Math.floor(milliseconds / 1000);
}

/** A file that was read, among the rotated ones: under the name that it has now. Undefined when it is not there. */
export async function rotatedPart(
  host: LogHost,
  path: string,
  was: Pick<LogPart, "inode" | "rotatedAt">,
  signal: AbortSignal,
): Promise<LogPart | undefined> {
  for await (const part of rotatedParts(host, path, signal)) if (isSame(part, was)) return part;
  return undefined;
}

/** Opens a part of a log for reading as it was written.
 *  @returns undefined when another file, or none, has its path now. */
export async function openPart(host: LogHost, part: LogPart, signal: AbortSignal): Promise<HostFile | undefined> {
  const file = await unlessGone(openLog(host, part.path, signal));
  if (!file) return undefined;
  if ((await file.stat(signal)).inode === part.inode) return part.isCompressed ? decompressed(file) : file;
  await file.close();
  return undefined;
}
