import { posix } from "node:path";
import { NodeServiceCapability_RPC_Type as Capability } from "../../gen/csi.ts";
import { isMountPoint, listMounts } from "../../host/mounts.ts";
import { driverDevicesOf } from "../../host/plugin-paths.ts";
import { CodedError, codeOf, messageOf, ignoreNotFound } from "../../lib/errors.ts";
import { timed } from "../../lib/timed.ts";
import { podDirectory } from "../paths.ts";
import type { DriverVolumes } from "./data-lister.ts";
import type { Kept, Leaving, LeavingDeps, UnpublishDeps } from "./leaving.ts";
import { mappedTo, unmapDevice, unmapOrphans } from "./map-device.ts";
import {
  type DataDirectory,
  blockPlaces,
  dataOfDevices,
  dataOfPod,
  dataOfStaged,
  devicesOfPod,
  removeMountDirectory,
  removeUnwritten,
  stagedPath,
} from "./volume-data.ts";

export const csiPlugin = "kubernetes.io/csi";

/** An error as the kubelet's CSI plugin prints it. @param what the failed step. */
export function csiError(what: string, error: unknown): CodedError {
  return new CodedError(codeOf(error), `${csiPlugin}: ${what}${messageOf(error)}`, { cause: error });
}

/** Identity of a CSI volume. */
export interface Handle {
  readonly driver: string;
  readonly volumeHandle: string;
}

/** Identity of a CSI volume as one string. */
export function csiId({ driver, volumeHandle }: Handle): string {
  return `${driver}^${volumeHandle}`;
}

/** Unstages CSI volumes: the driver unpublishes them from the pod, then unstages them from the node. While the driver is
 *  unavailable they stay, and so does a mount whose volume is not known for sure.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodeunpublishvolume */
export const csiLeaving: Leaving = {
  plugin: csiPlugin,
  attaches: true,
  async unpublish(deps, uid, signal) {
    const mounts = (await dataOfPod(deps, uid, signal)).map((one) =>
      kept(one.path, one.doubt ? "" : "Unmounter.TearDownAt failed: ", () => unpublish(deps, one)),
    );
    return (await Promise.all([...mounts, ...(await unpublishDevices(deps, uid, signal))])).flat();
  },
  async tidy(deps, signal) {
    await removeUnwritten(deps, signal);
    for (const { path, doubt } of await dataOfStaged(deps, signal))
      if (doubt)
        deps.log.warn({ err: doubt, path }, "found a staged volume with unreadable metadata; leaving it in place");
  },
  async staged(deps, known, signal) {
    const { staged, devices, used } = await deps.lying(signal);
    const ids = new Set([...staged, ...devices.values()].filter(isSure).map(idOf));
    // A staged volume with unreadable metadata may be one that the caller or a pod knows.
    const doubtful = new Set(staged.filter(({ doubt }) => doubt).map(({ path }) => path));
    for (const id of [...known, ...used.filter(isSure).map(idOf)])
      if (doubtful.has(stagedDirectory(deps.rootDir, id))) ids.add(id);
    return [...ids];
  },
  async unstage(deps, id, signal) {
    const lying = await deps.lying(signal);
    const { staged, used } = lying;
    if (used.some((one) => isSure(one) && idOf(one) === id)) return false;
    const path = stagedDirectory(deps.rootDir, id);
    if (staged.some((one) => one.path === path)) {
      const doubtful = used.filter((one) => !isSure(one));
      if (await mayBeUsed(deps, `${path}/globalmount`, doubtful)) return false;
      await unstage(deps, path, volumeOf(id)).catch((error: unknown) => {
        throw csiError("attacher.UnmountDevice failed: ", error);
      });
    }
    return unstageDevice(deps, lying, id, signal);
  },
};

const isSure = ({ doubt }: DataDirectory) => doubt === undefined;

function idOf({ data: { driverName = "", volumeHandle = "" } }: DataDirectory): string {
  return csiId({ driver: driverName, volumeHandle });
}

/** Parses the identity: driver names contain no caret. */
function volumeOf(id: string): Handle {
  const end = id.indexOf("^");
  return { driver: id.slice(0, end), volumeHandle: id.slice(end + 1) };
}

/** Directory that contains the staging path and its metadata. */
function stagedDirectory(rootDir: string, id: string): string {
  const { driver, volumeHandle } = volumeOf(id);
  return posix.dirname(stagedPath(rootDir, driver, volumeHandle));
}

/** True if a pod's mount with unreadable metadata shows the file system that is staged there, or if such a mount exists at all
 *  while nothing is mounted at the staging path. */
async function mayBeUsed(
  { host }: UnpublishDeps,
  staged: string,
  doubtful: readonly DataDirectory[],
): Promise<boolean> {
  if (doubtful.length === 0) return false;
  const mounts = await listMounts(host);
  const deviceOf = async (path: string) => {
    const real = await ignoreNotFound(host.fs.realpath(path));
    return mounts.findLast((mount) => mount.path === real)?.device;
  };
  const own = await deviceOf(staged);
  const others = await Promise.all(doubtful.map(({ path }) => deviceOf(`${path}/mount`)));
  return others.some((one) => one !== undefined && (one === own || own === undefined));
}

/** @returns an empty list on success, otherwise the directory to keep. */
async function kept(path: string, what: string, work: () => Promise<void>): Promise<readonly Kept[]> {
  try {
    await work();
    return [];
  } catch (error) {
    return [{ path, why: csiError(what, error) }];
  }
}

async function unpublish({ host, drivers }: UnpublishDeps, { path, data, doubt }: DataDirectory): Promise<void> {
  const { driverName = "", volumeHandle = "" } = data;
  const targetPath = `${path}/mount`;
  if (!doubt) await drivers.driver(driverName).unpublish({ volumeId: volumeHandle, targetPath });
  else if (await ignoreNotFound(isMountPoint(host, targetPath))) throw unloaded("unmounter", targetPath, doubt);
  await removeMountDirectory(host, targetPath);
}

function unloaded(what: string, path: string, doubt: CodedError): CodedError {
  return new CodedError(doubt.code, `${what} failed to load volume data file [${path}]: ${doubt.message}`);
}

async function unstage({ host, drivers }: UnpublishDeps, path: string, { driver: name, volumeHandle }: Handle) {
  const stagingTargetPath = `${path}/globalmount`;
  const driver = drivers.driver(name);
  const capabilities = await driver.capabilities();
  if (capabilities.has(Capability.STAGE_UNSTAGE_VOLUME))
    await driver.unstage({ volumeId: volumeHandle, stagingTargetPath });
  await removeMountDirectory(host, stagingTargetPath);
}

/** Unpublishes a pod's block volumes, found by their links and bind mounts. */
async function unpublishDevices(deps: UnpublishDeps, uid: string, signal: AbortSignal) {
  const linked = devicesOfPod(deps, uid, signal);
  const mapped = mappedTo(deps, { all: driverDevicesOf(deps.rootDir), below: "/dev" }, uid, signal);
  const names = [...new Set((await Promise.all([linked, mapped])).flat())];
  if (names.length === 0) return [];
  const known = await dataOfDevices(deps, signal);
  return names.map((name) => {
    const link = `${podDirectory(deps.rootDir, uid)}/volumeDevices/kubernetes.io~csi/${name}`;
    const { mapped, published } = blockPlaces(deps.rootDir, name);
    const targetPath = `${published}/${uid}`;
    const found = known.get(name);
    return kept(link, isSure(found ?? missing) ? "blockMapper.UnmapPodDevice failed: " : "", async () => {
      await unmapDevice(deps, mapped, uid);
      await unpublishDevice(deps, found ?? missing, targetPath);
      await removeUnmounted(deps, [link]);
    });
  });
}

const missing: DataDirectory = {
  path: "",
  data: {},
  doubt: new CodedError("failed_precondition", "no such file"),
};

async function unpublishDevice(deps: UnpublishDeps, { path, data, doubt }: DataDirectory, targetPath: string) {
  const { driverName = "", volumeHandle = "" } = data;
  if (!doubt) await deps.drivers.driver(driverName).unpublish({ volumeId: volumeHandle, targetPath });
  else if (await ignoreNotFound(isMountPoint(deps.host, targetPath))) throw unloaded("unmapper", path, doubt);
  await removeUnmounted(deps, [targetPath]);
}

/** Unstages block volumes unless a pod has a link to one. @returns true if none is left. */
async function unstageDevice(
  deps: LeavingDeps,
  { devices, linked }: DriverVolumes,
  id: string,
  signal: AbortSignal,
): Promise<boolean> {
  const own = [...devices].filter(([, one]) => isSure(one) && idOf(one) === id);
  if (own.some(([name]) => linked.includes(name))) return false;
  for (const [name, one] of own) {
    if (!(await unmapOrphans(deps, blockPlaces(deps.rootDir, name).mapped, signal))) return false;
    await timed(
      deps.clock,
      () => takeDevice(deps, name, one, signal),
      (ms, failed) => deps.measures.deviceUnmapped(`${csiPlugin}:${one.data["driverName"] ?? ""}`, ms, failed),
    );
  }
  return true;
}

async function takeDevice(deps: UnpublishDeps, name: string, one: DataDirectory, signal: AbortSignal): Promise<void> {
  const { staged, published, mapped, data } = blockPlaces(deps.rootDir, name);
  // A pod without its link has lost the device already.
  for (const { name: uid } of (await ignoreNotFound(deps.host.fs.list(published, signal))) ?? [])
    await unpublishDevice(deps, one, `${published}/${uid}`);
  const { driverName = "", volumeHandle = "" } = one.data;
  const driver = deps.drivers.driver(driverName);
  const isStaged = (await driver.capabilities()).has(Capability.STAGE_UNSTAGE_VOLUME);
  if (isStaged) await driver.unstage({ volumeId: volumeHandle, stagingTargetPath: staged });
  await removeUnmounted(deps, [staged, published, mapped]);
  await removeMountDirectory(deps.host, data);
  await removeUnmounted(deps, [posix.dirname(mapped)]);
}

/** Removes files and empty directories. @throws failed_precondition if one is a mount point. */
async function removeUnmounted({ host }: UnpublishDeps, paths: readonly string[]): Promise<void> {
  const mounts = await listMounts(host);
  for (const path of paths) {
    const real = await ignoreNotFound(host.fs.realpath(path));
    if (mounts.some((mount) => mount.path === real))
      throw new CodedError("failed_precondition", `${path} is still mounted`);
  }
  await host.fs.apply(paths.map((path) => ({ do: "remove", path })));
}
