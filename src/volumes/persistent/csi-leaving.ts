import { NodeServiceCapability_RPC_Type as Capability } from "../../gen/csi.ts";
import { listMounts } from "../../host/mounts.ts";
import { CodedError, codeOf, messageOf, unlessGone } from "../../lib/errors.ts";
import { podDirectory } from "../paths.ts";
import type { Kept, Leaving, LeavingDeps } from "./leaving.ts";
import {
  type DataDirectory,
  type VolumeData,
  blockPlaces,
  dataOfDevices,
  dataOfPod,
  dataOfPods,
  dataOfStaged,
  devicesOfPod,
  devicesOfPods,
  removeMountDirectory,
  removeUnwritten,
} from "./volume-data.ts";

export const csiPlugin = "kubernetes.io/csi";

/** An error as the kubelet's plugin prints it. @param what was to be done. */
export function csiError(what: string, error: unknown): CodedError {
  return new CodedError(codeOf(error), `${csiPlugin}: ${what}${messageOf(error)}`, { cause: error });
}

/** Identity of a driver's volume on a node. */
export function csiId({ driver, volumeHandle }: { readonly driver: string; readonly volumeHandle: string }): string {
  return `${driver}^${volumeHandle}`;
}

/** How volumes of storage drivers leave: the driver takes them back from the pod, and from the node. While it is away they stay.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodeunpublishvolume */
export const csiLeaving: Leaving = {
  plugin: csiPlugin,
  async unpublish(deps, uid, signal) {
    const mounts = (await dataOfPod(deps, uid, signal)).map((one) =>
      kept(one.path, "Unmounter.TearDownAt failed: ", () => unpublish(deps, one)),
    );
    return (await Promise.all([...mounts, ...(await unpublishDevices(deps, uid, signal))])).flat();
  },
  tidy: removeUnwritten,
  async staged(deps, signal) {
    const [mounts, devices] = await Promise.all([dataOfStaged(deps, signal), dataOfDevices(deps, signal)]);
    return [...new Set([...mounts.map(({ data }) => data), ...devices.values()].map(idOf))];
  },
  async unstage(deps, id, signal) {
    const [staged, used] = await Promise.all([dataOfStaged(deps, signal), dataOfPods(deps, signal)]);
    if (used.some(({ data }) => idOf(data) === id)) return false;
    for (const one of staged.filter(({ data }) => idOf(data) === id))
      await unstage(deps, one).catch((error: unknown) => {
        throw csiError("attacher.UnmountDevice failed: ", error);
      });
    return unstageDevice(deps, id, signal);
  },
};

function idOf({ driverName = "", volumeHandle = "" }: VolumeData): string {
  return csiId({ driver: driverName, volumeHandle });
}

/** @returns nothing when the work is done, and else the directory that has to stay. */
async function kept(path: string, what: string, work: () => Promise<void>): Promise<readonly Kept[]> {
  try {
    await work();
    return [];
  } catch (error) {
    return [{ path, why: csiError(what, error) }];
  }
}

async function unpublish({ host, drivers }: LeavingDeps, { path, data }: DataDirectory): Promise<void> {
  const { driverName = "", volumeHandle = "" } = data;
  const targetPath = `${path}/mount`;
  await drivers.driver(driverName).unpublish({ volumeId: volumeHandle, targetPath });
  await removeMountDirectory(host, targetPath);
}

async function unstage({ host, drivers }: LeavingDeps, { path, data }: DataDirectory): Promise<void> {
  const { driverName = "", volumeHandle = "" } = data;
  const stagingTargetPath = `${path}/globalmount`;
  const driver = drivers.driver(driverName);
  const capabilities = await driver.capabilities();
  if (capabilities.has(Capability.STAGE_UNSTAGE_VOLUME))
    await driver.unstage({ volumeId: volumeHandle, stagingTargetPath });
  await removeMountDirectory(host, stagingTargetPath);
}

/** Takes back what a pod has as devices: its links say what that is. */
async function unpublishDevices(deps: LeavingDeps, uid: string, signal: AbortSignal) {
  const names = await devicesOfPod(deps, uid, signal);
  if (names.length === 0) return [];
  const known = await dataOfDevices(deps, signal);
  return names.map((name) => {
    const link = `${podDirectory(deps.rootDir, uid)}/volumeDevices/kubernetes.io~csi/${name}`;
    const { driverName = "", volumeHandle = "" } = known.get(name) ?? {};
    const targetPath = `${blockPlaces(deps.rootDir, name).published}/${uid}`;
    return kept(link, "blockMapper.UnmapPodDevice failed: ", async () => {
      await deps.drivers.driver(driverName).unpublish({ volumeId: volumeHandle, targetPath });
      await removeUnmounted(deps, [targetPath, link]);
    });
  });
}

/** Takes a device from the node that no pod has a link to. @returns true when there is none. */
async function unstageDevice(deps: LeavingDeps, id: string, signal: AbortSignal): Promise<boolean> {
  const [known, used] = await Promise.all([dataOfDevices(deps, signal), devicesOfPods(deps, signal)]);
  const own = [...known].filter(([, data]) => idOf(data) === id);
  if (own.some(([name]) => used.includes(name))) return false;
  for (const [name, { driverName = "", volumeHandle = "" }] of own) {
    const { staged, published, data } = blockPlaces(deps.rootDir, name);
    const driver = deps.drivers.driver(driverName);
    // A pod that has lost its link has lost the device.
    for (const { name: uid } of (await unlessGone(deps.host.fs.list(published, signal))) ?? []) {
      const targetPath = `${published}/${uid}`;
      await driver.unpublish({ volumeId: volumeHandle, targetPath });
      await removeUnmounted(deps, [targetPath]);
    }
    const isStaged = (await driver.capabilities()).has(Capability.STAGE_UNSTAGE_VOLUME);
    if (isStaged) await driver.unstage({ volumeId: volumeHandle, stagingTargetPath: staged });
    await removeUnmounted(deps, [staged, published]);
    await removeMountDirectory(deps.host, data);
    await removeUnmounted(deps, [data.slice(0, -"/data/dev".length)]);
  }
  return true;
}

/** Removes files and empty directories that are no mounts. @throws failed_precondition for one that is. */
async function removeUnmounted({ host }: LeavingDeps, paths: readonly string[]): Promise<void> {
  const mounts = await listMounts(host);
  for (const path of paths) {
    const real = await unlessGone(host.fs.realpath(path));
    if (mounts.some((mount) => mount.path === real))
      throw new CodedError("failed_precondition", `${path} is still mounted`);
  }
  await host.fs.apply(paths.map((path) => ({ do: "remove", path })));
}
