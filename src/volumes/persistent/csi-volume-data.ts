import { createHash } from "node:crypto";
import { posix } from "node:path";
import { isAtOrBelow, listMounts } from "../../host/mounts.ts";
import { csiVolumeDevicesOf, csiPluginDirectoryOf, podDirectory, podsDirectory } from "../../host/layout.ts";
import { replaceFile } from "../../host/replace-file.ts";
import { parseBoundedJson } from "../../lib/bounded-text.ts";
import { CodedError, hasCode, messageOf, ignoreNotFound } from "../../lib/errors.ts";
import { sortedByKey } from "../../lib/sorted.ts";
import type { Host } from "../../seams/host.ts";
import { volumeDirectory } from "../paths.ts";

// Metadata that a kubelet saves next to the mounts of CSI volumes. After a crash, it identifies the driver to call.

/** A kubelet's `vol_data.json`. */
export type VolumeData = Readonly<Record<string, string>>;

/** A directory that should contain a vol_data.json. */
export interface VolumeDataDirectory {
  readonly path: string;
  readonly data: VolumeData;
  /** Why the volume is unknown: the file is missing or damaged, or belongs to another volume. `data` is then empty. */
  readonly problem?: CodedError;
}

interface VolumeDataDeps {
  readonly host: Host;
  readonly rootDir: string;
}

const fileName = "vol_data.json";
const maxBytes = 1024 * 1024;
const directoryMode = 0o750;

/** Staging path of a volume; its metadata is in the parent directory. */
export function stagedPath(rootDir: string, driver: string, volumeHandle: string): string {
  const sum = createHash("sha256").update(volumeHandle).digest("hex");
  return `${csiPluginDirectoryOf(rootDir)}/${driver}/${sum}/globalmount`;
}

/** Target path of a volume in a pod; its metadata is in the parent directory. */
export function publishedPath(rootDir: string, uid: string, volume: string): string {
  return `${volumeDirectory(rootDir, uid, "csi", volume.replaceAll("/", "~"))}/mount`;
}

/** Paths of a block volume: its staging path, the directory with a target path per pod UID, the directory with a bind mount per
 *  pod UID, and a path next to which its metadata is saved. */
export function blockVolumePaths(rootDir: string, volume: string) {
  const all = csiVolumeDevicesOf(rootDir);
  return {
    staged: `${all}/staging/${volume}`,
    published: `${all}/publish/${volume}`,
    mapped: `${all}/${volume}/dev`,
    data: `${all}/${volume}/data/dev`,
  };
}

/** Saves the metadata of a mount, and creates its directory. */
export async function saveVolumeData(host: Host, mount: string, data: VolumeData, signal: AbortSignal): Promise<void> {
  const directory = posix.dirname(mount);
  const path = `${directory}/${fileName}`;
  await host.fs.apply(
    [
      { kind: "mkdir", path: directory, mode: directoryMode, parents: true },
      // Replaced atomically: a truncated file would not identify the volume.
      ...replaceFile(path, `${JSON.stringify(sortedByKey(data))}\n`),
    ],
    signal,
  );
}

/** True if the metadata of a mount exists: an earlier attempt, or an earlier process, has already called the driver. */
export async function hasVolumeData(host: Host, mount: string, signal: AbortSignal): Promise<boolean> {
  return (await ignoreNotFound(host.fs.lstat(`${posix.dirname(mount)}/${fileName}`, signal))) !== undefined;
}

/** The metadata saved next to a mount; empty if it is missing or damaged. */
export async function volumeDataAt(host: Host, mount: string, signal: AbortSignal): Promise<VolumeData> {
  return (await dataIn(host, posix.dirname(mount), () => true, signal)).data;
}

/** Removes the directory of an unmounted volume and its metadata. Only empty directories are deleted. Nothing is deleted while
 *  something is mounted on or in the directory: that would be the volume's content.
 *  @throws failed_precondition if something is still mounted. */
export async function removeMountDirectory(host: Host, mount: string, signal?: AbortSignal): Promise<void> {
  const directory = posix.dirname(mount);
  const [real, mounts] = await Promise.all([
    ignoreNotFound(host.fs.realpath(directory, signal)),
    listMounts(host, signal),
  ]);
  if (real === undefined) return;
  const still = mounts.find(({ path }) => isAtOrBelow(path, real));
  if (still) throw new CodedError("failed_precondition", `${still.path} is still mounted`);
  const paths = [mount, `${directory}/${fileName}`, `${directory}/${fileName}.new`, directory];
  await ignoreNotFound(
    host.fs.apply(
      paths.map((path) => ({ kind: "remove", path })),
      signal,
    ),
  );
}

/** Metadata of a pod's volumes. */
export function podVolumeData(
  { host, rootDir }: VolumeDataDeps,
  uid: string,
  signal: AbortSignal,
): Promise<readonly VolumeDataDirectory[]> {
  const all = `${podDirectory(rootDir, uid)}/volumes/kubernetes.io~csi`;
  return dataBelow(host, all, belongsToDirectory, signal);
}

/** Metadata of the volumes of all pods. */
export async function allPodVolumeData(
  deps: VolumeDataDeps,
  signal: AbortSignal,
): Promise<readonly VolumeDataDirectory[]> {
  const pods = await directoriesIn(deps.host, podsDirectory(deps.rootDir), signal);
  const all = await Promise.all(pods.map((path) => podVolumeData(deps, posix.basename(path), signal)));
  return all.flat();
}

/** Names of a pod's block volumes. */
export async function podBlockVolumes(
  { host, rootDir }: VolumeDataDeps,
  uid: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const parent = `${podDirectory(rootDir, uid)}/volumeDevices/kubernetes.io~csi`;
  const entries = (await ignoreNotFound(host.fs.list(parent, signal))) ?? [];
  return entries.filter(({ kind }) => kind === "symlink").map(({ name }) => name);
}

export async function allPodBlockVolumes(deps: VolumeDataDeps, signal: AbortSignal): Promise<readonly string[]> {
  const pods = await directoriesIn(deps.host, podsDirectory(deps.rootDir), signal);
  return (await Promise.all(pods.map((path) => podBlockVolumes(deps, posix.basename(path), signal)))).flat();
}

/** Metadata of block volumes on the node, by volume name. */
export async function blockVolumeData(
  { host, rootDir }: VolumeDataDeps,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, VolumeDataDirectory>> {
  const names = await blockVolumesIn(host, csiVolumeDevicesOf(rootDir), signal);
  const found = names.map(async (name) => {
    const path = posix.dirname(blockVolumePaths(rootDir, name).data);
    const one = await dataIn(host, path, (_, { specVolID = name }) => specVolID === name, signal);
    return [name, one] as const;
  });
  return new Map(await Promise.all(found));
}

/** Metadata of staged volumes. */
export async function stagedVolumeData(
  { host, rootDir }: VolumeDataDeps,
  signal: AbortSignal,
): Promise<readonly VolumeDataDirectory[]> {
  const isStagedThere = (path: string, { driverName = "", volumeHandle = "" }: VolumeData) =>
    path === posix.dirname(stagedPath(rootDir, driverName, volumeHandle));
  const all = (await driverDirectories(host, rootDir, signal)).map((path) =>
    dataBelow(host, path, isStagedThere, signal),
  );
  return (await Promise.all(all)).flat();
}

async function driverDirectories(host: Host, rootDir: string, signal: AbortSignal): Promise<readonly string[]> {
  const all = csiPluginDirectoryOf(rootDir);
  return (await directoriesIn(host, all, signal)).filter((path) => path !== csiVolumeDevicesOf(rootDir));
}

/** Names of block volumes; the directory also contains the shared `staging` and `publish` directories. */
async function blockVolumesIn(host: Host, parent: string, signal: AbortSignal): Promise<readonly string[]> {
  const names = (await directoriesIn(host, parent, signal)).map((path) => posix.basename(path));
  return names.filter((name) => name !== "staging" && name !== "publish");
}

/** True if the metadata fits a pod's volume directory, which is named after the volume. */
function belongsToDirectory(path: string, { specVolID }: VolumeData): boolean {
  return specVolID === undefined || specVolID.replaceAll("/", "~") === posix.basename(path);
}

/** Removes directories of volumes without metadata, left by a process that died right after creating or right before removing
 *  them. Only empty directories are removed. */
export async function removeDirectoriesWithoutData(
  { host, rootDir }: VolumeDataDeps,
  signal: AbortSignal,
): Promise<void> {
  const drivers = await driverDirectories(host, rootDir, signal);
  const volumes = (await Promise.all(drivers.map((path) => directoriesIn(host, path, signal)))).flat();
  const mounts = volumes.map((path) => `${path}/globalmount`);
  const names = await blockVolumesIn(host, csiVolumeDevicesOf(rootDir), signal);
  const devices = names.map((name) => blockVolumePaths(rootDir, name));
  const tidied = [...mounts, ...devices.map(({ data }) => data)].map(async (mount) => {
    // Directories that are not empty stay.
    if (!(await hasVolumeData(host, mount, signal)))
      await removeMountDirectory(host, mount, signal).catch(() => undefined);
  });
  await Promise.all(tidied);
  const above = devices.flatMap(({ mapped }) => [mapped, posix.dirname(mapped)]);
  for (const path of above) await host.fs.apply([{ kind: "remove", path }], signal).catch(() => undefined);
}

type DataMatches = (path: string, data: VolumeData) => boolean;

async function dataBelow(
  host: Host,
  parent: string,
  matches: DataMatches,
  signal: AbortSignal,
): Promise<readonly VolumeDataDirectory[]> {
  const directories = await directoriesIn(host, parent, signal);
  return Promise.all(directories.map((path) => dataIn(host, path, matches, signal)));
}

/** Reads the metadata in a directory. Problems with one volume do not affect the others. @throws if the target cannot be read. */
async function dataIn(
  host: Host,
  path: string,
  matches: DataMatches,
  signal: AbortSignal,
): Promise<VolumeDataDirectory> {
  const file = `${path}/${fileName}`;
  const unreadable = (why: string): VolumeDataDirectory => ({
    path,
    data: {},
    problem: new CodedError("failed_precondition", `kubernetes.io/csi: ${why}`),
  });
  try {
    const data = parseVolumeData(await host.fs.readFile(file, { maxBytes, signal }));
    return matches(path, data) ? { path, data } : unreadable(`volume data file [${file}] belongs to another volume`);
  } catch (error) {
    if (hasCode(error, "invalid_argument"))
      return unreadable(`failed to parse volume data file [${file}]: ${messageOf(error)}`);
    if (!hasCode(error, "not_found", "failed_precondition", "resource_exhausted")) throw error;
    return unreadable(`failed to open volume data file [${file}]: ${messageOf(error)}`);
  }
}

async function directoriesIn(host: Host, parent: string, signal: AbortSignal): Promise<readonly string[]> {
  const entries = (await ignoreNotFound(host.fs.list(parent, signal))) ?? [];
  return entries.filter(({ kind }) => kind === "directory").map(({ name }) => `${parent}/${name}`);
}

/** @throws invalid_argument unless the text is a JSON object of strings that identifies a volume. */
function parseVolumeData(text: Buffer): VolumeData {
  const fail = (why: string) => new CodedError("invalid_argument", why);
  try {
    const data: unknown = parseBoundedJson(text);
    if (typeof data !== "object" || data === null) throw fail("not a JSON object");
    const { driverName, volumeHandle } = data as VolumeData;
    if (typeof driverName !== "string" || typeof volumeHandle !== "string")
      throw fail("driverName or volumeHandle is missing");
    return data as VolumeData;
  } catch (error) {
    throw fail(messageOf(error));
  }
}
