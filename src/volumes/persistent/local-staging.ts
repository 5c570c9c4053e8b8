import { listMounts, type Mount, type MountLister, locationInFileSystem, unmount } from "../../host/mounts.ts";
import { localVolumeDirectoryOf, podsDirectory } from "../../host/layout.ts";
import { ignoreNotFound } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";

interface LocalStagingDeps {
  readonly host: Host;
  readonly rootDir: string;
}

/** Names of local volumes that have a staging directory. */
export async function stagedLocalVolumes(
  { host, rootDir }: LocalStagingDeps,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const found = (await ignoreNotFound(host.fs.list(localVolumeDirectoryOf(rootDir), signal))) ?? [];
  return found.filter(({ kind }) => kind === "directory").map(({ name }) => name);
}

/** Mounts of a directory inside the pods' directories. */
export async function podMountsOf(
  { host, rootDir, mounts }: LocalStagingDeps & { readonly mounts: MountLister },
  directory: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const [real, root, all] = await Promise.all([
    host.fs.realpath(directory, signal),
    host.fs.realpath(rootDir, signal),
    mounts(signal),
  ]);
  return otherMountsOf(all, real).filter((path) => path.startsWith(`${podsDirectory(root)}/`));
}

/** Other mounts of exactly this directory. Pure. @param directory with links resolved. */
export function otherMountsOf(mounts: readonly Mount[], directory: string): readonly string[] {
  const source = locationInFileSystem(mounts, directory);
  if (!source) return [];
  return mounts
    .filter(({ device, root, path }) => device === source.device && root === source.root && path !== directory)
    .map(({ path }) => path);
}

/** Unmounts a staged volume, unless a pod has a mount of it or of a subdirectory. Only the mount table is consulted, so this also
 *  works after a crash.
 *  @returns true if it is unmounted. @throws failed_precondition if it cannot be unmounted. */
export async function unmountStaged(
  { host, rootDir }: LocalStagingDeps,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  const real = await ignoreNotFound(host.fs.realpath(path, signal));
  if (real === undefined) return true;
  const [root, mounts] = await Promise.all([host.fs.realpath(rootDir, signal), listMounts(host, signal)]);
  const staged = mounts.filter((mount) => mount.path === real);
  const isUsed = ({ device, path: at }: Mount) =>
    at.startsWith(`${podsDirectory(root)}/`) && staged.some((mount) => mount.device === device);
  if (mounts.some(isUsed)) return false;
  if (staged.length > 0) await unmount(host, real, signal);
  return true;
}

/** Unmounts a staged volume, unless a pod uses it, and removes its empty staging directory.
 *  @returns true if it is gone. @throws failed_precondition if it cannot be unmounted. */
export async function unstageLocalVolume(deps: LocalStagingDeps, name: string, signal: AbortSignal): Promise<boolean> {
  const path = `${localVolumeDirectoryOf(deps.rootDir)}/${name}`;
  if (!(await unmountStaged(deps, path, signal))) return false;
  // Not recursive: if it is still mounted, or contains files, nothing is deleted.
  await ignoreNotFound(deps.host.fs.apply([{ kind: "remove", path }], signal));
  return true;
}
