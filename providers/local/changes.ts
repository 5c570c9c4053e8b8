import { constants } from "node:fs";
import * as fsp from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { mountTmpfsCommand, parseMounts } from "../../src/host/mounts.ts";
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
 *  opened. */
async function remove(path: string, recursive: boolean, signal?: AbortSignal): Promise<void> {
  const notFile = await refusalOf(fsp.unlink(path), path, "EISDIR");
  if (!notFile) return;
  const notEmpty = await refusalOf(fsp.rmdir(path), path, "ENOTEMPTY", "EEXIST");
  if (!notEmpty) return;
  if (!recursive) throw notEmpty;
  await using parent = await ignoreNotFound(openDirectory(dirname(path), { follow: true }));
  if (!parent) return;
  const own = join(await fsp.readlink(parent.path), basename(path));
  const mount = mountPoints().find((each) => each === own || each.startsWith(`${own}/`));
  if (mount !== undefined) throw mountPointError(mount);
  await removeTree(parent, Buffer.from(basename(path)), signal);
}

/** Awaits the removal of a path. @param expected errors that mean that the path is not what the call removes.
 *  @returns such an error; undefined once nothing is at the path. @throws failed_precondition for a mount point. */
async function refusalOf(removal: Promise<void>, path: string, ...expected: string[]): Promise<Error | undefined> {
  try {
    await removal;
  } catch (error) {
    if (error instanceof Error && hasErrno(error, ...expected)) return error;
    // A read-only file system refuses even if nothing is there.
    const isMissing = hasErrno(error, "ENOENT", "ENOTDIR") || (hasErrno(error, "EROFS") && !(await exists(path)));
    if (isMissing) return undefined;
    // A cgroup with processes is busy too.
    if (hasErrno(error, "EBUSY") && mountPoints().includes(await realPathOf(path))) throw mountPointError(path);
    throw error;
  }
  return undefined;
}

async function exists(path: string): Promise<boolean> {
  return (await ignoreNotFound(fsp.lstat(path))) !== undefined;
}

/** The path as the kernel lists mounts: without links, except at its end. */
async function realPathOf(path: string): Promise<string> {
  return join(await fsp.realpath(dirname(path)), basename(path));
}

async function ignoreNotFound<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    if (!hasErrno(error, "ENOENT", "ENOTDIR")) throw error;
    return undefined;
  }
}

/** Lists mount points, including bind mounts of the same file system. */
function mountPoints(): readonly string[] {
  const table = readKernelFile("/proc/self/mountinfo", maxMountTableBytes).toString();
  return parseMounts(table).map(({ path }) => path);
}
