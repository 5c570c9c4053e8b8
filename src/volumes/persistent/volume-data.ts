import { createHash } from "node:crypto";
import { posix } from "node:path";
import { isMountPoint } from "../../host/mounts.ts";
import { stagedDriverVolumesOf } from "../../host/plugin-paths.ts";
import { CodedError, unlessGone } from "../../lib/errors.ts";
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
}

interface Place {
  readonly host: Host;
  readonly rootDir: string;
}

const fileName = "vol_data.json";
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
 *  pod's UID, and a name beside which its data lies. */
export function blockPlaces(rootDir: string, volume: string) {
  const all = `${stagedDriverVolumesOf(rootDir)}/volumeDevices`;
  return {
    staged: `${all}/staging/${volume}`,
    published: `${all}/publish/${volume}`,
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
      // In one step: half of it would say nothing of the volume.
      { do: "write", path: `${path}.new`, data: `${JSON.stringify(sortedByKey(data))}\n` },
      { do: "rename", from: `${path}.new`, to: path },
    ],
    signal,
  );
}

/** Removes the directory of a mount that is unmounted, and its data. Nothing is deleted but what is empty.
 *  @throws failed_precondition when it is still mounted. */
export async function removeMountDirectory(host: Host, mount: string, signal?: AbortSignal): Promise<void> {
  if (await unlessGone(isMountPoint(host, mount, signal)))
    throw new CodedError("failed_precondition", `${mount} is still mounted`);
  const directory = posix.dirname(mount);
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
  return dataBelow(host, `${podDirectory(rootDir, uid)}/volumes/kubernetes.io~csi`, signal);
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
  return ((await unlessGone(host.fs.list(parent, signal))) ?? []).map(({ name }) => name);
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
): Promise<ReadonlyMap<string, VolumeData>> {
  const parent = `${stagedDriverVolumesOf(rootDir)}/volumeDevices`;
  const volumes = await directoriesIn(host, parent, signal);
  const found = await Promise.all(
    volumes.map(async (path) =>
      (await dataBelow(host, path, signal)).map(({ data }) => [posix.basename(path), data] as const),
    ),
  );
  return new Map(found.flat());
}

/** Data of volumes that lie staged. */
export async function dataOfStaged({ host, rootDir }: Place, signal: AbortSignal): Promise<readonly DataDirectory[]> {
  const drivers = await directoriesIn(host, stagedDriverVolumesOf(rootDir), signal);
  const all = await Promise.all(drivers.map((path) => dataBelow(host, path, signal)));
  return all.flat();
}

/** Removes directories of volumes of which nothing is written down: a process died when it began with them, or when it was about to be
 *  done. Nothing but what is empty. */
export async function removeUnwritten({ host, rootDir }: Place, signal: AbortSignal): Promise<void> {
  const all = stagedDriverVolumesOf(rootDir);
  const volumesIn = async (parent: string) => directoriesIn(host, parent, signal);
  const drivers = (await volumesIn(all)).filter((path) => path !== `${all}/volumeDevices`);
  const mounts = (await Promise.all(drivers.map(volumesIn))).flat().map((path) => `${path}/globalmount`);
  const devices = (await volumesIn(`${all}/volumeDevices`))
    .map((path) => posix.basename(path))
    .filter((name) => name !== "staging" && name !== "publish")
    .map((name) => blockPlaces(rootDir, name));
  const unwritten = async (mount: string) =>
    (await unlessGone(host.fs.lstat(`${posix.dirname(mount)}/${fileName}`, signal))) === undefined;
  const tidied = [...mounts, ...devices.map(({ data }) => data)].map(async (mount) => {
    // What is not empty stays.
    if (await unwritten(mount)) await removeMountDirectory(host, mount, signal).catch(() => undefined);
  });
  await Promise.all(tidied);
  const above = devices.map(({ data }) => posix.dirname(posix.dirname(data)));
  for (const path of above) await host.fs.apply([{ do: "remove", path }], signal).catch(() => undefined);
}

async function dataBelow(host: Host, parent: string, signal: AbortSignal): Promise<readonly DataDirectory[]> {
  const directories = await directoriesIn(host, parent, signal);
  const found = directories.map(async (path) => {
    const text = await unlessGone(host.fs.readFile(`${path}/${fileName}`, { signal }));
    return text === undefined ? [] : [{ path, data: parsed(path, text.toString("utf8")) }];
  });
  return (await Promise.all(found)).flat();
}

async function directoriesIn(host: Host, parent: string, signal: AbortSignal): Promise<readonly string[]> {
  const entries = (await unlessGone(host.fs.list(parent, signal))) ?? [];
  return entries.filter(({ kind }) => kind === "directory").map(({ name }) => `${parent}/${name}`);
}

/** @throws failed_precondition: whose volume it is cannot be told. */
function parsed(path: string, text: string): VolumeData {
  try {
    return JSON.parse(text) as VolumeData;
  } catch (error) {
    const message = `kubernetes.io/csi: failed to parse volume data file [${path}/${fileName}]: ${String(error)}`;
    throw new CodedError("failed_precondition", message, { cause: error });
  }
}
