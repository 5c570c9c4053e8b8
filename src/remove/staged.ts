import { posix } from "node:path";
import type { Mount } from "../host/mounts.ts";
import { localVolumeDirectoryOf, stagedDriverVolumesOf } from "../host/plugin-paths.ts";
import { unlessGone } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";
import type { StagedVolume } from "./findings.ts";

/** Places of volumes that lie staged on a node, and the directories around them up to the root directory. A mount in one of those
 *  is not the node's. */
export async function stagedVolumes(
  fs: HostFs,
  root: string,
  mounts: readonly Mount[],
  signal: AbortSignal,
): Promise<readonly StagedVolume[]> {
  const isMounted = (path: string) => mounts.some((mount) => mount.path === path);
  const local = await devices(fs, root, signal);
  const ofDrivers = await driverVolumes(fs, root, signal);
  const asDevices = await driverDevices(fs, root, signal);
  const around = new Set(
    [...local.around, ...ofDrivers.around, ...asDevices.around].sort((one, other) => other.length - one.length),
  );
  return [
    ...[...local.own, ...ofDrivers.own, ...asDevices.own].map((path) => ({ path, isMounted: isMounted(path) })),
    ...[...ofDrivers.files, ...asDevices.files].map((path) => ({
      path,
      isMounted: isMounted(path),
      isFile: true as const,
    })),
    ...[...around].filter((path) => !isMounted(path)).map((path) => ({ path, isMounted: false })),
  ];
}

interface Found {
  /** Directories in which volumes are mounted. */
  readonly own: readonly string[];
  readonly around: readonly string[];
}

/** Devices of local volumes. */
async function devices(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const all = await directoryAt(fs, localVolumeDirectoryOf(root), signal);
  if (all === undefined) return { own: [], around: [] };
  return { own: await directoriesIn(fs, all, signal), around: upTo(all, root) };
}

/** Volumes of storage drivers. */
async function driverVolumes(
  fs: HostFs,
  root: string,
  signal: AbortSignal,
): Promise<Found & { readonly files: readonly string[] }> {
  const all = await directoryAt(fs, stagedDriverVolumesOf(root), signal);
  if (all === undefined) return { own: [], files: [], around: [] };
  const drivers = (await directoriesIn(fs, all, signal)).filter((path) => path !== `${all}/volumeDevices`);
  const volumes = (await Promise.all(drivers.map((path) => directoriesIn(fs, path, signal)))).flat();
  const inside = await Promise.all(
    volumes.map(async (path) =>
      (await entries(fs, path, signal)).map(({ name, kind }) => ({ name, kind, path: `${path}/${name}` })),
    ),
  );
  const named = (wanted: string, kind: string) =>
    inside.flat().flatMap((one) => (one.name === wanted && one.kind === kind ? [one.path] : []));
  return {
    own: named("globalmount", "directory"),
    files: named("vol_data.json", "file"),
    around: [...volumes, ...drivers, ...upTo(all, root)],
  };
}

/** Volumes of storage drivers that containers have as devices: a device is mounted over a file for each pod. */
async function driverDevices(
  fs: HostFs,
  root: string,
  signal: AbortSignal,
): Promise<Found & { readonly files: readonly string[] }> {
  const all = await directoryAt(fs, `${stagedDriverVolumesOf(root)}/volumeDevices`, signal);
  if (all === undefined) return { own: [], files: [], around: [] };
  const places = await directoriesIn(fs, all, signal);
  const shared = ["publish", "staging"].map((name) => `${all}/${name}`);
  const below = async (paths: readonly string[]) =>
    (await Promise.all(paths.map((path) => directoriesIn(fs, path, signal)))).flat();
  const filesIn = async (paths: readonly string[]) =>
    (
      await Promise.all(
        paths.map(async (path) =>
          (
            await entries(fs, path, signal)
          ).flatMap(({ name, kind }) => (kind === "file" || kind === "blockDevice" ? [`${path}/${name}`] : [])),
        ),
      )
    ).flat();
  const volumes = places.filter((path) => !shared.includes(path));
  const data = (await below(volumes)).filter((path) => posix.basename(path) === "data");
  const staged = await below([`${all}/staging`]);
  const published = await below([`${all}/publish`]);
  const records = (await filesIn(data)).filter((path) => posix.basename(path) === "vol_data.json");
  return {
    own: staged,
    files: [...(await filesIn([...published, ...staged])), ...records],
    around: [...published, ...data, ...volumes, ...shared, ...upTo(all, root)],
  };
}

/** A directory and those around it, below the root directory. */
function upTo(path: string, root: string): readonly string[] {
  return path === root ? [] : [path, ...upTo(posix.dirname(path), root)];
}

async function directoriesIn(fs: HostFs, parent: string, signal: AbortSignal): Promise<readonly string[]> {
  const found = (await entries(fs, parent, signal)).filter(({ kind }) => kind === "directory");
  return found.map(({ name }) => `${parent}/${name}`);
}

/** The path of a directory that exists and is no link. */
export async function directoryAt(fs: HostFs, path: string, signal: AbortSignal): Promise<string | undefined> {
  const info = await unlessGone(fs.lstat(path, signal));
  return info?.kind === "directory" ? path : undefined;
}

/** Entries of a directory; none when it is not there. */
export async function entries(fs: HostFs, path: string, signal: AbortSignal) {
  return (await unlessGone(fs.list(path, signal))) ?? [];
}
