import { listMounts, type Mount, type MountLister, placeOf, unmount } from "../../host/mounts.ts";
import { localVolumeDirectoryOf } from "../../host/plugin-paths.ts";
import { unlessGone } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";

interface StagedDeps {
  readonly host: Host;
  readonly rootDir: string;
}

/** Names of volumes that have a directory there. */
export async function stagedVolumes({ host, rootDir }: StagedDeps, signal: AbortSignal): Promise<readonly string[]> {
  const found = (await unlessGone(host.fs.list(localVolumeDirectoryOf(rootDir), signal))) ?? [];
  return found.filter(({ kind }) => kind === "directory").map(({ name }) => name);
}

/** Mounts of a directory in the pods' directories. */
export async function mountsOf(
  { host, rootDir, mounts }: StagedDeps & { readonly mounts: MountLister },
  directory: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const [real, root, all] = await Promise.all([
    host.fs.realpath(directory, signal),
    host.fs.realpath(rootDir, signal),
    mounts(signal),
  ]);
  return showing(all, real).filter((path) => path.startsWith(`${root}/pods/`));
}

/** The other mounts that show just a directory. Pure. @param directory without links. */
export function showing(mounts: readonly Mount[], directory: string): readonly string[] {
  const place = placeOf(mounts, directory);
  if (!place) return [];
  return mounts
    .filter(({ device, root, path }) => device === place.device && root === place.root && path !== directory)
    .map(({ path }) => path);
}

/** Unmounts a staged volume that no pod has a mount of, not even of a part, and removes its empty directory: what the mounts of the
 *  target say counts, so it is right after a crash, too. @returns true when it is gone. @throws failed_precondition when it cannot be unmounted. */
export async function unstage({ host, rootDir }: StagedDeps, name: string, signal: AbortSignal): Promise<boolean> {
  const path = `${localVolumeDirectoryOf(rootDir)}/${name}`;
  const real = await unlessGone(host.fs.realpath(path, signal));
  if (real === undefined) return true;
  const [root, mounts] = await Promise.all([host.fs.realpath(rootDir, signal), listMounts(host, signal)]);
  const staged = mounts.filter((mount) => mount.path === real);
  const isUsed = ({ device, path: at }: Mount) =>
    at.startsWith(`${root}/pods/`) && staged.some((mount) => mount.device === device);
  if (mounts.some(isUsed)) return false;
  if (staged.length > 0) await unmount(host, real, signal);
  // Not recursive: were it still mounted, or were there files below, nothing would be deleted.
  await unlessGone(host.fs.apply([{ do: "remove", path }], signal));
  return true;
}
