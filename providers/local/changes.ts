import { constants } from "node:fs";
import * as fsp from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { mountTmpfsCommand, mountsBelow, parseMounts } from "../../src/host/mounts.ts";
import { CodedError, hasCode, messageOf, throwIfAborted } from "../../src/lib/errors.ts";
import type { FileChange, RunOptions, RunResult } from "../../src/seams/host.ts";
import { openDirectory } from "./directory.ts";
import { withCodedErrors, hasErrno } from "./errors.ts";
import { readKernelFile } from "./kernel-file.ts";
import { mountPointError, removeTree } from "./remove-tree.ts";

const directoryMode = 0o755;
const fileMode = 0o644;
const maxMountTableBytes = 16 * 1024 * 1024;

/** Runs a command on this machine to completion. */
export type RunLocally = (argv: readonly string[], options?: RunOptions) => Promise<RunResult>;

/** Applies one change to this machine's files. @throws CodedError. */
export async function applyChange(run: RunLocally, change: FileChange, signal?: AbortSignal): Promise<void> {
  switch (change.kind) {
    case "mkdir":
      return makeDirectory(change.path, change.mode ?? directoryMode, change.parents === true);
    case "create":
      return withCodedErrors(change.path, () => createFile(change.path));
    case "write":
      return withCodedErrors(change.path, () => writeFile(change.path, change.data, change.mode ?? fileMode));
    case "symlink":
      return makeLink(change.path, change.target);
    case "rename":
      return withCodedErrors(change.from, () => fsp.rename(change.from, change.to));
    case "chmod":
      return withCodedErrors(change.path, () => fsp.chmod(change.path, change.mode));
    case "chown":
      return withCodedErrors(change.path, () => fsp.lchown(change.path, change.uid, change.gid));
    case "mountTmpfs":
      return mountTmpfs(run, change, signal);
    case "remove":
      return withCodedErrors(change.path, () => remove(change.path, change.recursive === true, signal));
  }
}

/** A new directory gets the exact mode, regardless of the umask; an existing one keeps its own. */
async function makeDirectory(path: string, mode: number, parents: boolean): Promise<void> {
  try {
    await withCodedErrors(path, () => fsp.mkdir(path, mode));
    if (!(await withCodedErrors(path, () => hasMode(path, mode))))
      await withCodedErrors(path, () => setMode(path, mode));
  } catch (error) {
    if (parents && hasCode(error, "not_found")) {
      await makeDirectory(dirname(path), directoryMode, true);
      return makeDirectory(path, mode, false);
    }
    if (!hasCode(error, "already_exists")) throw error;
    const existing = await withCodedErrors(path, () => fsp.stat(path));
    if (!existing.isDirectory())
      throw new CodedError("already_exists", `${path} exists and is not a directory`, { cause: error });
  }
}

/** Checks a new directory's mode, since most umasks do not alter it: one lstat is cheaper than opening the directory, and a pod has some
 *  twenty directories. */
async function hasMode(path: string, mode: number): Promise<boolean> {
  const made = await fsp.lstat(path);
  return made.isDirectory() && (made.mode & 0o7777) === mode;
}

/** Sets the mode of a new directory itself, never of the target of a link in its place. */
async function setMode(path: string, mode: number): Promise<void> {
  await using made = await openDirectory(path);
  await made.setMode(mode);
}

async function createFile(path: string): Promise<void> {
  const handle = await fsp.open(path, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW);
  try {
    await handle.chmod(fileMode);
  } finally {
    await handle.close();
  }
}

async function makeLink(path: string, target: string): Promise<void> {
  try {
    await withCodedErrors(path, () => fsp.symlink(target, path));
  } catch (error) {
    const same = hasCode(error, "already_exists") && (await fsp.readlink(path).catch(() => undefined)) === target;
    if (!same) throw error;
  }
}

async function writeFile(path: string, data: Uint8Array | string, mode: number): Promise<void> {
  const handle = await fsp.open(path, "w", mode);
  try {
    await handle.writeFile(data);
    await handle.chmod(mode);
  } finally {
    await handle.close();
  }
}

async function mountTmpfs(
  run: RunLocally,
  { path, options }: Extract<FileChange, { kind: "mountTmpfs" }>,
  signal?: AbortSignal,
): Promise<void> {
  try {
    const { code, stderr } = await run(mountTmpfsCommand(path, options), { brief: true, ...(signal && { signal }) });
    if (code !== 0) throw new Error(stderr.trim() || `exit code ${code}`);
  } catch (error) {
    throwIfAborted(signal);
    throw new CodedError("failed_precondition", `${path}: ${messageOf(error)}`, { cause: error });
  }
}

/** Removes a file or directory; a missing one counts as removed. Most paths need one or two calls; only a directory with entries is
 *  opened. @throws failed_precondition for a mount point, or one below it. */
async function remove(path: string, recursive: boolean, signal?: AbortSignal): Promise<void> {
  try {
    await ignoreNotFound(unlinkOrRmdir(path));
  } catch (error) {
    // A read-only file system refuses even if nothing is there.
    if (hasErrno(error, "EROFS") && !(await ignoreNotFound(fsp.lstat(path)))) return;
    const hasEntries = hasErrno(error, "ENOTEMPTY", "EEXIST");
    // A mount point is busy, and so is a cgroup with processes.
    if (!hasErrno(error, "EBUSY") && !(hasEntries && recursive)) throw error;
    await using parent = await ignoreNotFound(openDirectory(dirname(path), { follow: true }));
    if (!parent) return;
    const mount = firstMountBelow(join(await fsp.readlink(parent.path), basename(path)));
    if (mount !== undefined) throw mountPointError(mount);
    if (!hasEntries) throw error;
    await removeTree(parent, Buffer.from(basename(path)), signal);
  }
}

/** Removes a file, a link or an empty directory. */
async function unlinkOrRmdir(path: string): Promise<void> {
  try {
    await fsp.unlink(path);
  } catch (error) {
    if (!hasErrno(error, "EISDIR")) throw error;
    await fsp.rmdir(path);
  }
}

async function ignoreNotFound<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (!hasErrno(error, "ENOENT", "ENOTDIR")) throw error;
    return undefined;
  }
}

/** The first mount point at a path or below it, including bind mounts of the same file system. @param path without symlinks. */
function firstMountBelow(path: string): string | undefined {
  const table = readKernelFile("/proc/self/mountinfo", maxMountTableBytes).toString();
  return mountsBelow(parseMounts(table), path).at(-1);
}
