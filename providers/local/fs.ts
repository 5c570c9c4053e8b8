import * as fsp from "node:fs/promises";
import { constants, lstatSync, type Stats } from "node:fs";
import { fileSystemInfo } from "../../src/host/statfs.ts";
import { CodedError, throwIfAborted } from "../../src/lib/errors.ts";
import {
  type DirectoryEntry,
  type FileInfo,
  type FileKind,
  type HostFile,
  type HostFs,
  maxDirectoryEntries,
  tooManyEntries,
} from "../../src/seams/host.ts";
import { type RunLocally, applyChange } from "./changes.ts";
import { withCodedErrors } from "./errors.ts";
import { isKernelFile, readKernelFile } from "./kernel-file.ts";

const defaultMaxBytes = 4 * 1024 * 1024;

/** This machine's files. */
export function localFs(run: RunLocally): HostFs {
  return {
    async readFile(path, { maxBytes = defaultMaxBytes, signal } = {}) {
      throwIfAborted(signal);
      if (isKernelFile(path)) return readKernelFile(path, maxBytes);
      await using file = await openFile(path, false);
      const { size } = await file.stat();
      const chunks: Buffer[] = [];
      let length = 0;
      for (;;) {
        throwIfAborted(signal);
        const chunk = await file.read(length, Math.min(maxBytes + 1, Math.max(65_536, size + 1)));
        length += chunk.length;
        if (length > maxBytes) throw new CodedError("resource_exhausted", `${path} is larger than ${maxBytes} bytes`);
        if (chunk.length === 0) return Buffer.concat(chunks);
        chunks.push(chunk);
      }
    },
    open: async (path, { noFollow = false, signal } = {}) => {
      throwIfAborted(signal);
      return noFollow ? openNoFollow(path) : openFile(path, false);
    },
    async readTail(path, bytes, signal) {
      throwIfAborted(signal);
      await using file = await openFile(path, true);
      const { size } = await file.stat();
      return await file.read(Math.max(0, size - bytes), bytes);
    },
    list: (path) => withCodedErrors(path, () => listDirectory(path)),
    stat: (path) => withCodedErrors(path, async () => infoOf(await fsp.stat(path))),
    lstat: (path) => withCodedErrors(path, async () => infoOf(await fsp.lstat(path))),
    lstatAll,
    readlink: (path) => withCodedErrors(path, () => fsp.readlink(path)),
    realpath: (path) => withCodedErrors(path, () => fsp.realpath(path)),
    fileSystemInfo: (path) =>
      withCodedErrors(path, async () => {
        const { bsize, blocks, bavail, bfree, files, ffree } = await fsp.statfs(path);
        return fileSystemInfo({
          blockSize: bsize,
          blocks,
          free: bfree,
          available: bavail,
          inodes: files,
          inodesFree: ffree,
        });
      }),
    async apply(changes, signal) {
      for (const change of changes) {
        throwIfAborted(signal);
        await applyChange(run, change, signal);
      }
    },
  };
}

async function listDirectory(path: string): Promise<DirectoryEntry[]> {
  const found: DirectoryEntry[] = [];
  for await (const entry of await fsp.opendir(path, { bufferSize: 1024 })) {
    if (found.length === maxDirectoryEntries) throw tooManyEntries(path);
    found.push({ name: entry.name, kind: kindOf(entry) });
  }
  return found;
}

/** Batched lstat. The first call is asynchronous: if the file system hangs, it blocks a thread of the pool and not the process. The others
 *  are synchronous, which takes a tenth of the CPU time. */
async function lstatAll(
  paths: readonly string[],
  signal?: AbortSignal,
): Promise<ReadonlyMap<string, FileInfo | undefined>> {
  throwIfAborted(signal);
  const [first] = paths;
  if (first !== undefined) await fsp.lstat(first).catch(() => undefined);
  throwIfAborted(signal);
  const found = new Map<string, FileInfo | undefined>();
  for (const path of paths) {
    try {
      const stats = lstatSync(path, { throwIfNoEntry: false });
      found.set(path, stats && infoOf(stats));
    } catch {
      // A directory that may not be searched, a name that is too long.
    }
  }
  return found;
}

/** Number of attempts if the file is renamed between opening it and reading its path. */
const attempts = 5;

/** Opens a file at a path without links. This is verified with the kernel's path of the open file.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_fd.5.html */
async function openNoFollow(path: string): Promise<HostFile> {
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    const file = await openFile(path, true);
    try {
      if ((await file.currentPath()) === path) return file;
    } catch (error) {
      await file.close();
      throw error;
    }
    await file.close();
  }
  throw new CodedError("failed_precondition", `${path} passes through a symbolic link`);
}

/** Opens without blocking, so that a FIFO in the file's place cannot hang the caller. */
async function openFile(path: string, noFollow: boolean): Promise<LocalFile> {
  const flags = constants.O_RDONLY | constants.O_NONBLOCK | (noFollow ? constants.O_NOFOLLOW : 0);
  const handle = await withCodedErrors(path, () => fsp.open(path, flags));
  const stats = await handle.stat();
  if (!stats.isFile()) {
    await handle.close();
    throw new CodedError("failed_precondition", `${path} is not a regular file`);
  }
  return {
    read: (position, length, _signal, into = Buffer.allocUnsafe(length)) =>
      withCodedErrors(path, async () => {
        const { buffer, bytesRead } = await handle.read(into, 0, length, position);
        return buffer.subarray(0, bytesRead);
      }),
    stat: () => withCodedErrors(path, async () => infoOf(await handle.stat())),
    currentPath: () => withCodedErrors(path, () => fsp.readlink(`/proc/self/fd/${handle.fd}`)),
    close: () => handle.close(),
    [Symbol.asyncDispose]: () => handle.close(),
  };
}

interface LocalFile extends HostFile {
  /** Returns the file's current path, without links. */
  currentPath(): Promise<string>;
}

interface Typed {
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
  isSocket(): boolean;
  isFIFO(): boolean;
  isCharacterDevice(): boolean;
}

function kindOf(entry: Typed): FileKind {
  if (entry.isFile()) return "file";
  if (entry.isDirectory()) return "directory";
  if (entry.isSymbolicLink()) return "symlink";
  if (entry.isSocket()) return "socket";
  if (entry.isFIFO()) return "fifo";
  return entry.isCharacterDevice() ? "characterDevice" : "blockDevice";
}

function infoOf(stats: Stats): FileInfo {
  const { mode, uid, gid, size, mtimeMs, ino } = stats;
  return { kind: kindOf(stats), mode: mode & 0o7777, uid, gid, size, modifiedAt: mtimeMs, inode: ino };
}
