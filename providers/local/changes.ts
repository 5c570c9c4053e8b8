import * as fsp from "node:fs/promises";
import { dirname } from "node:path";
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
      return coded(change.path, () => fsp.symlink(change.target, change.path));
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
    if (!existing.isDirectory()) throw new CodedError("already_exists", `${path} exists and is not a directory`, { cause: error });
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

async function remove(path: string, recursive: boolean): Promise<void> {
  try {
    const { dev } = await coded(path, () => fsp.lstat(path));
    const parent = await coded(path, () => fsp.stat(dirname(path)));
    await (recursive ? removeTree(path, parent.dev) : coded(path, () => removeOne(path, dev, parent.dev)));
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
  }
}

/** Removes depth first; a directory on another device is a mount, and what lies behind it is somebody's. */
async function removeTree(path: string, device: number): Promise<void> {
  const stats = await coded(path, () => fsp.lstat(path));
  if (stats.dev !== device) throw mounted(path);
  if (stats.isDirectory()) {
    for (const name of await coded(path, () => fsp.readdir(path))) await removeTree(`${path}/${name}`, device);
    return coded(path, () => fsp.rmdir(path));
  }
  return coded(path, () => fsp.unlink(path));
}

async function removeOne(path: string, device: number, parentDevice: number): Promise<void> {
  if (device !== parentDevice) throw mounted(path);
  const stats = await fsp.lstat(path);
  await (stats.isDirectory() ? fsp.rmdir(path) : fsp.unlink(path));
}

function mounted(path: string): CodedError {
  return new CodedError("failed_precondition", `${path} is a mount point: unmount it first`);
}
