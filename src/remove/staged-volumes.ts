import { posix } from "node:path";
import type { Mount } from "../host/mounts.ts";
import { iscsiDirectoriesOf, localDevicesOf, localVolumeDirectoryOf, csiPluginDirectoryOf } from "../host/layout.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";
import type { StagedVolume } from "./findings.ts";

/** Staging paths on a node, and the directories around them up to the root directory. Paths inside a mount are left out: if a driver
 *  has mounted the volume one directory too high, these paths are the volume's content. */
export async function findStagedVolumes(
  fs: HostFs,
  root: string,
  mounts: readonly Mount[],
  signal: AbortSignal,
): Promise<readonly StagedVolume[]> {
  const isMounted = (path: string) => mounts.some((mount) => mount.path === path);
  const local = await devices(fs, root, signal);
  const held = await localDevices(fs, root, signal);
  const csiVolumes = await driverVolumes(fs, root, signal);
  const iscsiVolumes = await iscsiDisks(fs, root, signal);
  const all = [local, held, csiVolumes, iscsiVolumes].flatMap((one) => one.around);
  const around = new Set(all.sort((one, other) => other.length - one.length));
  return [
    ...[...local.own, ...held.own, ...csiVolumes.own, ...iscsiVolumes.own]
      .filter(({ path }) => !isMounted(posix.dirname(path)))
      .map((one) => ({ ...one, isMounted: isMounted(one.path) })),
    ...[...around].filter((path) => !isMounted(path)).map((path) => ({ path, isMounted: false })),
  ];
}

interface Found {
  /** Staging paths, and files next to them. */
  readonly own: readonly Omit<StagedVolume, "isMounted">[];
  readonly around: readonly string[];
}

const nothing: Found = { own: [], around: [] };

/** Block devices of local volumes. */
async function devices(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const all = await directoryAt(fs, localVolumeDirectoryOf(root), signal);
  if (all === undefined) return nothing;
  const own = await inside(fs, [all], signal);
  return { own: own.filter(({ isFile }) => !isFile).map(({ path }) => ({ path })), around: upTo(all, root) };
}

/** Local block volumes: `VOLUME/POD`. */
async function localDevices(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const all = await directoryAt(fs, localDevicesOf(root), signal);
  if (all === undefined) return nothing;
  const volumes = await directoriesIn(fs, [all], signal);
  return { own: await heldIn(fs, volumes, signal), around: [...volumes, ...upTo(all, root)] };
}

/** iSCSI disks: `iface-INTERFACE/DISK` with the mount of a file system, `volumeDevices/iface-INTERFACE/DISK/POD`. */
async function iscsiDisks(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const { mounts, devices } = iscsiDirectoriesOf(root);
  const all = await directoryAt(fs, mounts, signal);
  if (all === undefined) return nothing;
  const disksBelow = async (parent: string) => {
    const interfaces = (await directoriesIn(fs, [parent], signal)).filter((path) =>
      posix.basename(path).startsWith("iface-"),
    );
    return { interfaces, disks: await directoriesIn(fs, interfaces, signal) };
  };
  const [mounted, mapped] = await Promise.all([disksBelow(all), disksBelow(devices)]);
  const disk = (parent: string) => (path: string) => ({ path, iscsiDisk: path.slice(parent.length + 1) });
  const held = (await heldIn(fs, mapped.disks, signal)).filter(({ path }) => posix.basename(path) !== "iscsi.json");
  return {
    own: [...held, ...mounted.disks.map(disk(all)), ...mapped.disks.map(disk(devices))],
    around: [
      ...mapped.interfaces,
      ...mounted.interfaces,
      ...(mapped.interfaces.length > 0 ? [devices] : []),
      ...upTo(all, root),
    ],
  };
}

/** Files bound to pods' devices, in the volumes' directories. */
async function heldIn(fs: HostFs, directories: readonly string[], signal: AbortSignal): Promise<Found["own"]> {
  const found = (await inside(fs, directories, signal)).filter(({ isFile }) => isFile);
  return found.map(({ path }) => ({ path, isHeld: true }));
}

/** Volumes of CSI drivers. */
async function driverVolumes(fs: HostFs, root: string, signal: AbortSignal): Promise<Found> {
  const all = await directoryAt(fs, csiPluginDirectoryOf(root), signal);
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

/** Block volumes of CSI drivers: `staging/VOLUME`, `publish/VOLUME/POD`, `VOLUME/dev/POD`, `VOLUME/data/vol_data.json`. */
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

/** Directories before files: metadata is removed after the path that it describes. */
function byKind(own: Found["own"]): Found["own"] {
  return own.toSorted((one, other) => Number(one.isFile ?? false) - Number(other.isFile ?? false));
}

/** Directories and files of CSI drivers inside directories. */
async function inside(fs: HostFs, parents: readonly string[], signal: AbortSignal): Promise<Found["own"]> {
  const found = parents.map(async (parent) =>
    (await entries(fs, parent, signal)).flatMap(({ name, kind }): Found["own"] => {
      const path = `${parent}/${name}`;
      if (kind === "directory") return [{ path, isCsi: true }];
      return kind === "symlink" ? [] : [{ path, isCsi: true, isFile: true }];
    }),
  );
  return (await Promise.all(found)).flat();
}

/** A directory and its parents, below the root directory. */
function upTo(path: string, root: string): readonly string[] {
  return path === root ? [] : [path, ...upTo(posix.dirname(path), root)];
}

async function directoriesIn(fs: HostFs, parents: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
  return (await inside(fs, parents, signal)).filter(({ isFile }) => !isFile).map(({ path }) => path);
}

/** The real path of a directory; undefined if it does not exist or is a symbolic link. */
export async function directoryAt(fs: HostFs, path: string, signal: AbortSignal): Promise<string | undefined> {
  const info = await ignoreNotFound(fs.lstat(path, signal));
  return info?.kind === "directory" ? path : undefined;
}

/** Entries of a directory; empty if it does not exist. */
export async function entries(fs: HostFs, path: string, signal: AbortSignal) {
  return (await ignoreNotFound(fs.list(path, signal))) ?? [];
}
