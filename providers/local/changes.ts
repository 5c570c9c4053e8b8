import * as fsp from "node:fs/promises";
import { basename, dirname } from "node:path";
import { parseMounts } from "../../src/host/mounts.ts";
import { CodedError, hasCode } from "../../src/lib/errors.ts";
import type { FileChange } from "../../src/seams/host.ts";
import { coded } from "./errors.ts";

const directoryMode = 0o755;
const fileMode = 0o644;

/** Makes one change to this machine's files. @throws CodedError. */
export async function applyChange(change: FileChange): Promise<void> {
  switch (change.do) {
    case "mkdir":
      return makeDirectory(change.path, change.mode ?? directoryMode, change.parents === true);
    case "write":
      return coded(change.path, () => writeFile(change.path, change.data, change.mode ?? fileMode));
    case "symlink":
      return makeLink(change.path, change.target);
    case "rename":
      return coded(change.from, () => fsp.rename(change.from, change.to));
    case "chmod":
      return coded(change.path, () => fsp.chmod(change.path, change.mode));
    case "chown":
      return coded(change.path, () => fsp.lchown(change.path, change.uid, change.gid));
    case "remove":
      return remove(change.path, change.recursive === true);
  }
}

/** The mode is exact for what this call makes, whatever the umask; what exists keeps its own. */
async function makeDirectory(path: string, mode: number, parents: boolean): Promise<void> {
  try {
    await coded(path, () => fsp.mkdir(path));
    await coded(path, () => fsp.chmod(path, mode));
  } catch (error) {
    if (parents && hasCode(error, "not_found")) {
      await makeDirectory(dirname(path), directoryMode, true);
      return makeDirectory(path, mode, false);
    }
    if (!hasCode(error, "already_exists")) throw error;
    const existing = await coded(path, () => fsp.stat(path));
    if (!existing.isDirectory())
      throw new CodedError("already_exists", `${path} exists and is not a directory`, { cause: error });
  }
}

async function makeLink(path: string, target: string): Promise<void> {
  try {
    await coded(path, () => fsp.symlink(target, path));
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

/** What is gone already, or goes meanwhile, is removed. */
async function remove(path: string, recursive: boolean): Promise<void> {
  await unlessGone(async () => {
    const parent = await coded(path, () => fsp.realpath(dirname(path)));
    const { dev } = await coded(path, () => fsp.stat(parent));
    const own = `${parent}/${basename(path)}`;
    if (!recursive) return removeOne(own, dev);
    const mount = (await mountPoints()).find((each) => each === own || each.startsWith(`${own}/`));
    if (mount !== undefined) throw mounted(mount);
    await removeTree(own, dev);
  });
}

/** Removes depth first; a directory on another device is a mount, and what lies behind it is somebody's. */
async function removeTree(path: string, device: number): Promise<void> {
  await unlessGone(async () => {
    const stats = await coded(path, () => fsp.lstat(path));
    if (stats.isDirectory() && stats.dev === device) {
      for (const name of await coded(path, () => fsp.readdir(path))) await removeTree(`${path}/${name}`, device);
    }
    await removeOne(path, device);
  });
}

async function removeOne(path: string, device: number): Promise<void> {
  const stats = await coded(path, () => fsp.lstat(path));
  if (stats.dev !== device) throw mounted(path);
  await coded(path, () => (stats.isDirectory() ? fsp.rmdir(path) : fsp.unlink(path)));
}

/** Paths on which something is mounted, bind mounts of the same file system included. */
async function mountPoints(): Promise<readonly string[]> {
  const table = await coded("/proc/self/mountinfo", () => fsp.readFile("/proc/self/mountinfo", "utf8"));
  return parseMounts(table).map(({ path }) => path);
}

async function unlessGone(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
  }
}

function mounted(path: string): CodedError {
  return new CodedError("failed_precondition", `${path} is a mount point: unmount it first`);
}
