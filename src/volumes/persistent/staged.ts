import { listMounts, type Mount, type MountLister, placeOf, unmount } from "../../host/mounts.ts";
import { localVolumeDirectoryOf } from "../../host/plugin-paths.ts";
import { unlessGone } from "../../lib/errors.ts";
import type { Host } from "../../seams/host.ts";

/** Names of volumes that have a directory there. */
export async function stagedVolumes(host: Host, rootDir: string, signal: AbortSignal): Promise<readonly string[]> {
  const found = (await unlessGone(host.fs.list(localVolumeDirectoryOf(rootDir), signal))) ?? [];
  return found.filter(({ kind }) => kind === "directory").map(({ name }) => name);
}

/** Mounts of a directory in the pods' directories. */
export async function mountsOf(
  { host, rootDir, mounts }: { readonly host: Host; readonly rootDir: string; readonly mounts: MountLister },
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
 *  target say counts, so it is right after a crash, too. @throws failed_precondition when it cannot be unmounted. */
export async function unstage(host: Host, rootDir: string, name: string, signal: AbortSignal): Promise<void> {
  const path = `${localVolumeDirectoryOf(rootDir)}/${name}`;
  const real = await unlessGone(host.fs.realpath(path, signal));
  if (real === undefined) return;
  const [root, mounts] = await Promise.all([host.fs.realpath(rootDir, signal), listMounts(host, signal)]);
  const staged = mounts.filter((mount) => mount.path === real);
  const isUsed = ({ device, path: at }: Mount) =>
    at.startsWith(`${root}/pods/`) && staged.some((mount) => mount.device === device);
  if (mounts.some(isUsed)) return;
  if (staged.length > 0) await unmount(host, real, signal);
  // Not recursive: were it still mounted, or were there files below, nothing would be deleted.
  await host.fs.apply([{ do: "remove", path }], signal);
}
