import { NodeServiceCapability_RPC_Type as Capability } from "../../gen/csi.ts";
import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { Kept, Leaving, LeavingDeps } from "./leaving.ts";
import {
  type DataDirectory,
  type VolumeData,
  dataOfPod,
  dataOfPods,
  dataOfStaged,
  removeMountDirectory,
} from "./volume-data.ts";

export const csiPlugin = "kubernetes.io/csi";

/** Identity of a driver's volume on a node. */
export function csiId({ driver, volumeHandle }: { readonly driver: string; readonly volumeHandle: string }): string {
  return `${driver}^${volumeHandle}`;
}

/** How volumes of storage drivers leave: the driver takes them back from the pod, and from the node. While it is away they stay.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodeunpublishvolume */
export const csiLeaving: Leaving = {
  plugin: csiPlugin,
  async unpublish(deps, uid, signal) {
    const all = await dataOfPod(deps, uid, signal);
    const kept = all.map(async (one): Promise<readonly Kept[]> => {
      try {
        await unpublish(deps, one);
        return [];
      } catch (error) {
        return [{ path: one.path, why: named("Unmounter.TearDownAt failed: ", error) }];
      }
    });
    return (await Promise.all(kept)).flat();
  },
  async staged(deps, signal) {
    return (await dataOfStaged(deps, signal)).map(({ data }) => idOf(data));
  },
  async unstage(deps, id, signal) {
    const [staged, used] = await Promise.all([dataOfStaged(deps, signal), dataOfPods(deps, signal)]);
    if (used.some(({ data }) => idOf(data) === id)) return false;
    for (const one of staged.filter(({ data }) => idOf(data) === id))
      await unstage(deps, one).catch((error: unknown) => {
        throw named("attacher.UnmountDevice failed: ", error);
      });
    return true;
  },
};

function idOf({ driverName = "", volumeHandle = "" }: VolumeData): string {
  return csiId({ driver: driverName, volumeHandle });
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

function named(what: string, error: unknown): CodedError {
  return new CodedError(codeOf(error), `${csiPlugin}: ${what}${messageOf(error)}`, { cause: error });
}
