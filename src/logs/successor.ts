import { posix } from "node:path";
import { pipeline, Readable } from "node:stream";
import { createGunzip } from "node:zlib";
import { ignoreNotFound, CodedError, codeOf, messageOf } from "../lib/errors.ts";
import type { FileInfo, HostFile } from "../seams/host.ts";
import { type LogHost, openLog } from "./log-file.ts";
import { rotatedFiles } from "./rotated-files.ts";

export interface LogFilePart {
  readonly path: string;
  readonly inode: number;
  /** Rotation time in its name, kept by compression; absent for the current file and for Docker's files. */
  readonly rotatedAt?: string;
  readonly isCompressed?: boolean;
}

/** The file being read, identified by inode and modification time, and by its rotation time if known. */
type FileIdentity = Pick<FileInfo, "inode" | "modifiedAt"> & Pick<LogFilePart, "rotatedAt">;

/** The file that follows this one: a slow reader may be several rotations behind. Compressed files keep the time of their last
 *  line, by which a file that was opened as the current one is recognized. @param path of the current file. */
export async function successor(
  host: LogHost,
  path: string,
  { mine, current }: { readonly mine: FileIdentity; readonly current: FileInfo },
  signal: AbortSignal,
): Promise<LogFilePart> {
  let next: LogFilePart = { path, inode: current.inode };
  let oldestYounger = next;
  for await (const { modifiedAt, ...part } of rotatedParts(host, path, signal)) {
    if (isSame(part, mine)) return next;
    next = part;
    if (isYounger({ ...part, modifiedAt }, mine)) oldestYounger = part;
  }
  return oldestYounger;
}

/** Existing rotated files of a log, newest first. */
async function* rotatedParts(
  host: LogHost,
  path: string,
  signal: AbortSignal,
): AsyncGenerator<LogFilePart & Pick<FileInfo, "modifiedAt">> {
  const directory = posix.dirname(path);
  const names = (await host.fs.list(directory, signal)).map(({ name }) => name);
  for (const { name, ...log } of rotatedFiles(names, posix.basename(path))) {
    const older = `${directory}/${name}`;
    const found = await ignoreNotFound(host.fs.lstat(older, signal));
    if (found) yield { path: older, inode: found.inode, modifiedAt: found.modifiedAt, ...log };
  }
}

/** Compares the rotation times if both have one: the inode of a removed file may have been reused. */
function isSame(part: LogFilePart, { inode, rotatedAt }: Pick<LogFilePart, "inode" | "rotatedAt">): boolean {
  const timed = part.rotatedAt !== undefined && rotatedAt !== undefined;
  return timed ? part.rotatedAt === rotatedAt : part.inode === inode;
}

function isYounger({ rotatedAt, modifiedAt }: FileIdentity, mine: FileIdentity): boolean {
  if (rotatedAt !== undefined && mine.rotatedAt !== undefined) return rotatedAt > mine.rotatedAt;
  return seconds(modifiedAt) > seconds(mine.modifiedAt);
}

/** Some hosts report times in whole seconds. */
function seconds(milliseconds: number): number {
  return Math.floor(milliseconds / 1000);
}

/** Finds a file among the rotated ones, under its current name. Undefined if it is gone. */
export async function rotatedPart(
  host: LogHost,
  path: string,
  was: Pick<LogFilePart, "inode" | "rotatedAt">,
  signal: AbortSignal,
): Promise<LogFilePart | undefined> {
  for await (const part of rotatedParts(host, path, signal)) if (isSame(part, was)) return part;
  return undefined;
}

/** Opens a file of a log for reading, decompressed if necessary. @returns undefined if its path now belongs to another file or
 *  none. */
export async function openPart(host: LogHost, part: LogFilePart, signal: AbortSignal): Promise<HostFile | undefined> {
  const file = await ignoreNotFound(openLog(host, part.path, signal));
  if (!file) return undefined;
  if ((await file.stat(signal)).inode === part.inode) return part.isCompressed ? decompressed(file) : file;
  await file.close();
  return undefined;
}

const blockBytes = 64 * 1024;

/** Presents a gzip file as its uncompressed content: forward reads only, and its size is the number of bytes read so far.
 *  Skipped data is decompressed too, a few blocks at a time. @throws CodedError from `read` if the content is not gzip; the
 *  host's errors. */
function decompressed(file: HostFile): HostFile {
  const content = pipeline(Readable.from(blocksOf(file)), createGunzip(), () => undefined);
  const chunks: AsyncIterator<Buffer> = content[Symbol.asyncIterator]();
  let rest: Buffer = Buffer.alloc(0);
  /** Position of `rest`. */
  let at = 0;
  const more = async (): Promise<boolean> => {
    const next = await chunks.next().catch((error: unknown) => {
      throw new CodedError(codeOf(error), `cannot decompress: ${messageOf(error)}`, { cause: error });
    });
    if (next.done !== true) rest = next.value;
    return next.done !== true;
  };
  const close = async () => {
    content.destroy();
    await file.close();
  };
  return {
    async read(position, length, signal) {
      if (position < at) throw new CodedError("failed_precondition", "a compressed file can only be read forward");
      for (;;) {
        signal?.throwIfAborted();
        const skipped = Math.min(position - at, rest.length);
        at += skipped;
        rest = rest.subarray(skipped);
        if (rest.length > 0) break;
        if (!(await more())) return rest;
      }
      const block = rest.subarray(0, length);
      rest = rest.subarray(block.length);
      at += block.length;
      return block;
    },
    stat: async (signal) => ({ ...(await file.stat(signal)), size: at }),
    close,
    [Symbol.asyncDispose]: close,
  };
}

async function* blocksOf(file: HostFile): AsyncGenerator<Buffer> {
  for (let position = 0; ; ) {
    const block = await file.read(position, blockBytes);
    if (block.length === 0) return;
    position += block.length;
    yield block;
  }
}
