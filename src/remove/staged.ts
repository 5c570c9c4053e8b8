import { posix } from "node:path";
import type { Mount } from "../host/mounts.ts";
import { localDevicesOf, localVolumeDirectoryOf, stagedDriverVolumesOf } from "../host/plugin-paths.ts";
import { unlessGone } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";
import type { StagedVolume } from "./findings.ts";

/** Places of volumes that lie staged on a node, and the directories around them up to the root directory. A mount in one of those
 *  is not the node's, nor is what lies in it: it is a volume's own where a driver has mounted that a directory too high. */
export async function stagedVolumes(
  fs: HostFs,
  root: string,
  mounts: readonly Mount[],
  signal: AbortSignal,
): Promise<readonly StagedVolume[]> {
  const isMounted = (path: string) => mounts.some((mount) => mount.path === path);
  const local = await devices(fs, root, signal);
  const held = await localDevices(fs, root, signal);
  const ofDrivers = await driverVolumes(fs, root, signal);
  const all = [local, held, ofDrivers].flatMap((one) => one.around);
  const around = new Set(all.sort((one, other) => other.length - one.length));
  return [
    ...[...local.own, ...held.own, ...ofDrivers.own]
      .filter(({ path }) => !isMounted(posix.dirname(path)))
      .map((one) => ({ ...one, isMounted: isMounted(one.path) })),
    ...[...around].filter((path) => !isMounted(path)).map((path) => ({ path, isMounted: false })),
  ];
}

interface Found {
  /** Where volumes are mounted, and files beside. */
  readonly own: readonly Omit<StagedVolume, "isMounted">[];
  readonly around: readonly string[];
}

const nothing: Found = { own: [], around: [] };

/** Devices of local volumes. */
async function devices(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const all = await directoryAt(fs, localVolumeDirectoryOf(root), signal);
  if (all === undefined) return nothing;
  const own = await inside(fs, [all], signal);
  return { own: own.filter(({ isFile }) => !isFile).map(({ path }) => ({ path })), around: upTo(all, root) };
}

/** Local volumes that containers have as devices: `VOLUME/POD`. */
async function localDevices(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const all = await directoryAt(fs, localDevicesOf(root), signal);
  if (all === undefined) return nothing;
  const volumes = await directoriesIn(fs, [all], signal);
  return { own: await heldIn(fs, volumes, signal), around: [...volumes, ...upTo(all, root)] };
}

/** Files that hold pods' devices, in the volumes' directories. */
async function heldIn(fs: HostFs, directories: readonly string[], signal: AbortSignal): Promise<Found["own"]> {
  const found = (await inside(fs, directories, signal)).filter(({ isFile }) => isFile);
  return found.map(({ path }) => ({ path, isHeld: true }));
}

/** Volumes of storage drivers. */
async function driverVolumes(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const all = await directoryAt(fs, stagedDriverVolumesOf(root), signal);
  if (all === undefined) return nothing;
  const devicesOfAll = `${all}/volumeDevices`;
  const drivers = await directoriesIn(fs, [all], signal);
  const volumes = await directoriesIn(
    fs,
    drivers.filter((path) => path !== devicesOfAll),
    signal,
  );
  const ofDevices = await driverDevices(fs, devicesOfAll, signal);
  const own = (await inside(fs, volumes, signal)).filter(
    ({ path, isFile }) => posix.basename(path) === (isFile ? "vol_data.json" : "globalmount"),
  );
  return {
    own: byKind([...own, ...ofDevices.own]),
    around: [...volumes, ...ofDevices.around, ...drivers, ...upTo(all, root)],
  };
}

/** Volumes of storage drivers that containers have as devices: `staging/VOLUME`, `publish/VOLUME/POD`, `VOLUME/dev/POD`,
 *  `VOLUME/data/vol_data.json`. */
async function driverDevices(fs: HostFs, all: string, signal: AbortSignal): Promise<Found> {
  const volumes = await directoriesIn(fs, [all], signal);
  const [staging, publish] = [`${all}/staging`, `${all}/publish`];
  const published = await directoriesIn(fs, [publish], signal);
  const single = volumes.filter((path) => path !== staging && path !== publish);
  const data = single.map((path) => `${path}/data`);
  const mapped = (await directoriesIn(fs, single, signal)).filter((path) => posix.basename(path) === "dev");
  const records = (await inside(fs, data, signal)).filter(({ path }) => posix.basename(path) === "vol_data.json");
  const own = [...(await inside(fs, [...published, staging], signal)), ...records];
  const around = [...records.map(({ path }) => posix.dirname(path)), ...published, ...mapped, ...volumes];
  return { own: [...(await heldIn(fs, mapped, signal)), ...own], around };
}

/** Directories before files: a record goes when the place that it tells of is gone. */
function byKind(own: Found["own"]): Found["own"] {
  return own.toSorted((one, other) => Number(one.isFile ?? false) - Number(other.isFile ?? false));
}

/** Directories and files in directories, of storage drivers. */
async function inside(fs: HostFs, parents: readonly string[], signal: AbortSignal): Promise<Found["own"]> {
  const found = parents.map(async (parent) =>
    (await entries(fs, parent, signal)).flatMap(({ name, kind }): Found["own"] => {
      const path = `${parent}/${name}`;
      if (kind === "directory") return [{ path, ofDriver: true }];
      return kind === "symlink" ? [] : [{ path, ofDriver: true, isFile: true }];
    }),
  );
  return (await Promise.all(found)).flat();
}

/** A directory and those around it, below the root directory. */
function upTo(path: string, root: string): readonly string[] {
  return path === root ? [] : [path, ...upTo(posix.dirname(path), root)];
}

async function directoriesIn(fs: HostFs, parents: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
  return (await inside(fs, parents, signal)).filter(({ isFile }) => !isFile).map(({ path }) => path);
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
