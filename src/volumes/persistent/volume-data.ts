import { createHash } from "node:crypto";
import { posix } from "node:path";
import { isAtOrBelow, listMounts } from "../../host/mounts.ts";
import { driverDevicesOf, stagedDriverVolumesOf } from "../../host/plugin-paths.ts";
import { replaceFile } from "../../host/replace-file.ts";
import { parseBoundedJson } from "../../lib/bounded-text.ts";
import { CodedError, hasCode, messageOf, unlessGone } from "../../lib/errors.ts";
import { sortedByKey } from "../../lib/sorted.ts";
import type { Host } from "../../seams/host.ts";
import { podDirectory, volumeDirectory } from "../paths.ts";

// What a kubelet writes down of volumes of storage drivers, beside their mounts. It is what says after a crash which driver to ask.

/** A kubelet's `vol_data.json`. */
export type VolumeData = Readonly<Record<string, string>>;

/** A directory with such a file. */
export interface DataDirectory {
  readonly path: string;
  readonly data: VolumeData;
  /** Why it cannot be told whose volume it is: the data is not there, is damaged, or is that of another. It is empty then. */
  readonly doubt?: CodedError;
}

interface Place {
  readonly host: Host;
  readonly rootDir: string;
}

const fileName = "vol_data.json";
const maxBytes = 1024 * 1024;
const directoryMode = 0o750;

/** Place of a volume that is staged for the node; its data lies in the directory above. */
export function stagedPath(rootDir: string, driver: string, volumeHandle: string): string {
  const sum = createHash("sha256").update(volumeHandle).digest("hex");
  return `${stagedDriverVolumesOf(rootDir)}/${driver}/${sum}/globalmount`;
}

/** Place of a volume in a pod; its data lies in the directory above. */
export function publishedPath(rootDir: string, uid: string, volume: string): string {
  return `${volumeDirectory(rootDir, uid, "csi", volume.replaceAll("/", "~"))}/mount`;
}

/** Places of a volume that containers have as a device: where it is staged, the directory in which it is published to each pod under the
 *  pod's UID, the one in which the node binds it for each pod, and a name beside which its data lies. */
export function blockPlaces(rootDir: string, volume: string) {
  const all = driverDevicesOf(rootDir);
  return {
    staged: `${all}/staging/${volume}`,
    published: `${all}/publish/${volume}`,
    mapped: `${all}/${volume}/dev`,
    data: `${all}/${volume}/data/dev`,
  };
}

/** Writes the data of a mount, and makes the directory above it. */
export async function saveData(host: Host, mount: string, data: VolumeData, signal: AbortSignal): Promise<void> {
  const directory = posix.dirname(mount);
  const path = `${directory}/${fileName}`;
  await host.fs.apply(
    [
      { do: "mkdir", path: directory, mode: directoryMode, parents: true },
      // Half of it would say nothing of the volume.
      ...replaceFile(path, `${JSON.stringify(sortedByKey(data))}\n`),
    ],
    signal,
  );
}

/** True when the data of a mount is there: an earlier try, or an earlier process, has asked the driver for it. */
export async function isWritten(host: Host, mount: string, signal: AbortSignal): Promise<boolean> {
  return (await unlessGone(host.fs.lstat(`${posix.dirname(mount)}/${fileName}`, signal))) !== undefined;
}

/** Removes the directory of a mount that is unmounted, and its data. Nothing is deleted but what is empty, and nothing where a driver has
 *  mounted anything in that directory, or on it: that would be the volume's own.
 *  @throws failed_precondition when something is still mounted. */
export async function removeMountDirectory(host: Host, mount: string, signal?: AbortSignal): Promise<void> {
  const directory = posix.dirname(mount);
  const [real, mounts] = await Promise.all([unlessGone(host.fs.realpath(directory, signal)), listMounts(host, signal)]);
  if (real === undefined) return;
  const still = mounts.find(({ path }) => isAtOrBelow(path, real));
  if (still) throw new CodedError("failed_precondition", `${still.path} is still mounted`);
  const paths = [mount, `${directory}/${fileName}`, `${directory}/${fileName}.new`, directory];
  await unlessGone(
    host.fs.apply(
      paths.map((path) => ({ do: "remove", path })),
      signal,
    ),
  );
}

/** Data of volumes that a pod has. */
export function dataOfPod(
  { host, rootDir }: Place,
  uid: string,
  signal: AbortSignal,
): Promise<readonly DataDirectory[]> {
  const all = `${podDirectory(rootDir, uid)}/volumes/kubernetes.io~csi`;
  return dataBelow(host, all, isOf, signal);
}

/** Data of volumes that pods have. */
export async function dataOfPods(place: Place, signal: AbortSignal): Promise<readonly DataDirectory[]> {
  const pods = await directoriesIn(place.host, `${place.rootDir}/pods`, signal);
  const all = await Promise.all(pods.map((path) => dataOfPod(place, posix.basename(path), signal)));
  return all.flat();
}

/** Names of volumes that a pod has as devices. */
export async function devicesOfPod(
  { host, rootDir }: Place,
  uid: string,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const parent = `${podDirectory(rootDir, uid)}/volumeDevices/kubernetes.io~csi`;
  const entries = (await unlessGone(host.fs.list(parent, signal))) ?? [];
  return entries.filter(({ kind }) => kind === "symlink").map(({ name }) => name);
}

/** Names of volumes that pods have as devices. */
export async function devicesOfPods(place: Place, signal: AbortSignal): Promise<readonly string[]> {
  const pods = await directoriesIn(place.host, `${place.rootDir}/pods`, signal);
  return (await Promise.all(pods.map((path) => devicesOfPod(place, posix.basename(path), signal)))).flat();
}

/** Data of volumes that lie on the node as devices, by their names. */
export async function dataOfDevices(
  { host, rootDir }: Place,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, DataDirectory>> {
  const names = await devicesIn(host, driverDevicesOf(rootDir), signal);
  const found = names.map(async (name) => {
    const path = posix.dirname(blockPlaces(rootDir, name).data);
    const one = await dataIn(host, path, (_, { specVolID = name }) => specVolID === name, signal);
    return [name, one] as const;
  });
  return new Map(await Promise.all(found));
}

/** Data of volumes that lie staged. */
export async function dataOfStaged({ host, rootDir }: Place, signal: AbortSignal): Promise<readonly DataDirectory[]> {
  const isStagedThere = (path: string, { driverName = "", volumeHandle = "" }: VolumeData) =>
    path === posix.dirname(stagedPath(rootDir, driverName, volumeHandle));
  const all = (await driversIn(host, rootDir, signal)).map((path) => dataBelow(host, path, isStagedThere, signal));
  return (await Promise.all(all)).flat();
}

async function driversIn(host: Host, rootDir: string, signal: AbortSignal): Promise<readonly string[]> {
  const all = stagedDriverVolumesOf(rootDir);
  return (await directoriesIn(host, all, signal)).filter((path) => path !== driverDevicesOf(rootDir));
}

/** Names of volumes that lie there as devices; beside them are the places in which all are staged and published. */
async function devicesIn(host: Host, parent: string, signal: AbortSignal): Promise<readonly string[]> {
  const names = (await directoriesIn(host, parent, signal)).map((path) => posix.basename(path));
  return names.filter((name) => name !== "staging" && name !== "publish");
}

/** A pod's volume lies in a directory of its name. */
function isOf(path: string, { specVolID }: VolumeData): boolean {
  return specVolID === undefined || specVolID.replaceAll("/", "~") === posix.basename(path);
}

/** Removes directories of volumes of which nothing is written down: a process died when it began with them, or when it was about to be
 *  done. Nothing but what is empty. */
export async function removeUnwritten({ host, rootDir }: Place, signal: AbortSignal): Promise<void> {
  const drivers = await driversIn(host, rootDir, signal);
  const volumes = (await Promise.all(drivers.map((path) => directoriesIn(host, path, signal)))).flat();
  const mounts = volumes.map((path) => `${path}/globalmount`);
  const names = await devicesIn(host, driverDevicesOf(rootDir), signal);
  const devices = names.map((name) => blockPlaces(rootDir, name));
  const tidied = [...mounts, ...devices.map(({ data }) => data)].map(async (mount) => {
    // What is not empty stays.
    if (!(await isWritten(host, mount, signal))) await removeMountDirectory(host, mount, signal).catch(() => undefined);
  });
  await Promise.all(tidied);
  const above = devices.flatMap(({ mapped }) => [mapped, posix.dirname(mapped)]);
  for (const path of above) await host.fs.apply([{ do: "remove", path }], signal).catch(() => undefined);
}

type IsRight = (path: string, data: VolumeData) => boolean;

async function dataBelow(
  host: Host,
  parent: string,
  isRight: IsRight,
  signal: AbortSignal,
): Promise<readonly DataDirectory[]> {
  const directories = await directoriesIn(host, parent, signal);
  return Promise.all(directories.map((path) => dataIn(host, path, isRight, signal)));
}

/** The data in a directory. What is wrong with one volume's is no other's concern. @throws what the target says. */
async function dataIn(host: Host, path: string, isRight: IsRight, signal: AbortSignal): Promise<DataDirectory> {
  const file = `${path}/${fileName}`;
  const doubtful = (why: string): DataDirectory => ({
    path,
    data: {},
    doubt: new CodedError("failed_precondition", `kubernetes.io/csi: ${why}`),
  });
  try {
    const data = parsed(await host.fs.readFile(file, { maxBytes, signal }));
    return isRight(path, data) ? { path, data } : doubtful(`volume data file [${file}] is another volume's`);
  } catch (error) {
    if (hasCode(error, "invalid_argument"))
      return doubtful(`failed to parse volume data file [${file}]: ${messageOf(error)}`);
    if (!hasCode(error, "not_found", "failed_precondition", "resource_exhausted")) throw error;
    return doubtful(`failed to open volume data file [${file}]: ${messageOf(error)}`);
  }
}

async function directoriesIn(host: Host, parent: string, signal: AbortSignal): Promise<readonly string[]> {
  const entries = (await unlessGone(host.fs.list(parent, signal))) ?? [];
  return entries.filter(({ kind }) => kind === "directory").map(({ name }) => `${parent}/${name}`);
}

/** @throws invalid_argument for anything but an object of texts that names a volume. */
function parsed(text: Buffer): VolumeData {
  const fail = (why: string) => new CodedError("invalid_argument", why);
  try {
    const data: unknown = parseBoundedJson(text);
    if (typeof data !== "object" || data === null) throw fail("it is no object");
    const { driverName, volumeHandle } = data as VolumeData;
    if (typeof driverName !== "string" || typeof volumeHandle !== "string") throw fail("it names no volume");
    return data as VolumeData;
  } catch (error) {
    throw fail(messageOf(error));
  }
}
