import { posix } from "node:path";
import { NodeServiceCapability_RPC_Type as Capability } from "../../gen/csi.ts";
import { isMountPoint, listMounts } from "../../host/mounts.ts";
import { csiVolumeDevicesOf, podDirectory } from "../../host/layout.ts";
import { CodedError, codeOf, messageOf, ignoreNotFound } from "../../lib/errors.ts";
import { timed } from "../../lib/timed.ts";
import type { CsiVolumes } from "./csi-volume-lister.ts";
import type { RetainedDirectory, PersistentVolumeUnmounter, UnmounterDeps, UnpublishDeps } from "./unmounter.ts";
import { volumesMappedFor, unmapDevice, unmapOrphans } from "./map-device.ts";
import {
  type VolumeDataDirectory,
  blockVolumePaths,
  blockVolumeData,
  podVolumeData,
  stagedVolumeData,
  podBlockVolumes,
  removeMountDirectory,
  removeDirectoriesWithoutData,
  stagedPath,
} from "./csi-volume-data.ts";

export const csiPluginName = "kubernetes.io/csi";

/** An error as the kubelet's CSI plugin prints it. @param step the failed step. */
export function csiPluginError(step: string, error: unknown): CodedError {
  return new CodedError(codeOf(error), `${csiPluginName}: ${step}${messageOf(error)}`, { cause: error });
}

export interface CsiVolumeHandle {
  readonly driver: string;
  readonly volumeHandle: string;
}

export function csiVolumeId({ driver, volumeHandle }: CsiVolumeHandle): string {
  return `${driver}^${volumeHandle}`;
}

/** Unpublishes CSI volumes from pods, and unstages them from the node, by calls to their drivers. A volume stays while its driver
 *  is unavailable. A mount stays, too, while it is uncertain which volume it shows.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodeunpublishvolume */
export const csiUnmounter: PersistentVolumeUnmounter = {
  pluginName: csiPluginName,
  attachedNames: (id) => [`${csiPluginName}/${id}`],
  async unpublish(deps, uid, signal) {
    const mounts = (await podVolumeData(deps, uid, signal)).map((one) =>
      retainOnError(one.path, one.problem ? "" : "Unmounter.TearDownAt failed: ", () => unpublish(deps, one)),
    );
    return (await Promise.all([...mounts, ...(await unpublishDevices(deps, uid, signal))])).flat();
  },
  async removeIncomplete(deps, signal) {
    await removeDirectoriesWithoutData(deps, signal);
    for (const { path, problem } of await stagedVolumeData(deps, signal))
      if (problem)
        deps.log.warn({ err: problem, path }, "found a staged volume with unreadable metadata; leaving it in place");
  },
  async listStaged(deps, known, signal) {
    const { staged, devices, published } = await deps.listVolumes(signal);
    const ids = new Set([...staged, ...devices.values()].filter(isReadable).map(volumeIdOf));
    // If the metadata of a staged volume is unreadable, the volume is recognized by its path among those that the caller or a pod
    // knows.
    const unreadable = new Set(staged.filter(({ problem }) => problem).map(({ path }) => path));
    for (const id of [...known, ...published.filter(isReadable).map(volumeIdOf)])
      if (unreadable.has(stagingDirectory(deps.rootDir, id))) ids.add(id);
    return [...ids];
  },
  async unstage(deps, id, signal) {
    const volumes = await deps.listVolumes(signal);
    const { staged, published } = volumes;
    if (published.some((one) => isReadable(one) && volumeIdOf(one) === id)) return false;
    const path = stagingDirectory(deps.rootDir, id);
    if (staged.some((one) => one.path === path)) {
      const unreadable = published.filter((one) => !isReadable(one));
      if (await mayBeUsed(deps, `${path}/globalmount`, unreadable)) return false;
      await unstage(deps, path, parseVolumeId(id)).catch((error: unknown) => {
        throw csiPluginError("attacher.UnmountDevice failed: ", error);
      });
    }
    return unstageBlockVolumes(deps, volumes, id, signal);
  },
};

const isReadable = ({ problem }: VolumeDataDirectory) => problem === undefined;

function volumeIdOf({ data: { driverName = "", volumeHandle = "" } }: VolumeDataDirectory): string {
  return csiVolumeId({ driver: driverName, volumeHandle });
}

/** Splits a volume ID, `DRIVER^HANDLE`, at its first caret: driver names contain none. */
function parseVolumeId(id: string): CsiVolumeHandle {
  const end = id.indexOf("^");
  return { driver: id.slice(0, end), volumeHandle: id.slice(end + 1) };
}

/** Directory that contains the staging path and its metadata. */
function stagingDirectory(rootDir: string, id: string): string {
  const { driver, volumeHandle } = parseVolumeId(id);
  return posix.dirname(stagedPath(rootDir, driver, volumeHandle));
}

/** True if a pod's mount with unreadable metadata shows the file system that is staged there, or if such a mount exists at all
 *  while nothing is mounted at the staging path. */
async function mayBeUsed(
  { host }: UnpublishDeps,
  staged: string,
  unreadable: readonly VolumeDataDirectory[],
): Promise<boolean> {
  if (unreadable.length === 0) return false;
  const mounts = await listMounts(host);
  const deviceOf = async (path: string) => {
    const real = await ignoreNotFound(host.fs.realpath(path));
    return mounts.findLast((mount) => mount.path === real)?.device;
  };
  const own = await deviceOf(staged);
  const others = await Promise.all(unreadable.map(({ path }) => deviceOf(`${path}/mount`)));
  return others.some((one) => one !== undefined && (one === own || own === undefined));
}

/** @returns an empty list on success, otherwise the directory to keep. */
async function retainOnError(
  path: string,
  step: string,
  work: () => Promise<void>,
): Promise<readonly RetainedDirectory[]> {
  try {
    await work();
    return [];
  } catch (error) {
    return [{ path, reason: csiPluginError(step, error) }];
  }
}

async function unpublish(
  { host, drivers }: UnpublishDeps,
  { path, data, problem }: VolumeDataDirectory,
): Promise<void> {
  const { driverName = "", volumeHandle = "" } = data;
  const targetPath = `${path}/mount`;
  if (!problem) await drivers.driver(driverName).unpublish({ volumeId: volumeHandle, targetPath });
  else if (await ignoreNotFound(isMountPoint(host, targetPath))) throw unreadableData("unmounter", targetPath, problem);
  await removeMountDirectory(host, targetPath);
}

function unreadableData(what: string, path: string, problem: CodedError): CodedError {
  return new CodedError(problem.code, `${what} failed to load volume data file [${path}]: ${problem.message}`);
}

async function unstage(
  { host, drivers }: UnpublishDeps,
  path: string,
  { driver: name, volumeHandle }: CsiVolumeHandle,
) {
  const stagingTargetPath = `${path}/globalmount`;
  const driver = drivers.driver(name);
  const capabilities = await driver.capabilities();
  if (capabilities.has(Capability.STAGE_UNSTAGE_VOLUME))
    await driver.unstage({ volumeId: volumeHandle, stagingTargetPath });
  await removeMountDirectory(host, stagingTargetPath);
}

/** Unpublishes a pod's block volumes, found by their links and bind mounts. */
async function unpublishDevices(deps: UnpublishDeps, uid: string, signal: AbortSignal) {
  const linked = podBlockVolumes(deps, uid, signal);
  const mapped = volumesMappedFor(deps, { all: csiVolumeDevicesOf(deps.rootDir), below: "/dev" }, uid, signal);
  const names = [...new Set((await Promise.all([linked, mapped])).flat())];
  if (names.length === 0) return [];
  const known = await blockVolumeData(deps, signal);
  return names.map((name) => {
    const link = `${podDirectory(deps.rootDir, uid)}/volumeDevices/kubernetes.io~csi/${name}`;
    const { mapped, published } = blockVolumePaths(deps.rootDir, name);
    const targetPath = `${published}/${uid}`;
    const found = known.get(name);
    return retainOnError(
      link,
      isReadable(found ?? missingData) ? "blockMapper.UnmapPodDevice failed: " : "",
      async () => {
        await unmapDevice(deps, mapped, uid);
        await unpublishDevice(deps, found ?? missingData, targetPath);
        await removeUnmounted(deps, [link]);
      },
    );
  });
}

const missingData: VolumeDataDirectory = {
  path: "",
  data: {},
  problem: new CodedError("failed_precondition", "no such file"),
};

async function unpublishDevice(deps: UnpublishDeps, { path, data, problem }: VolumeDataDirectory, targetPath: string) {
  const { driverName = "", volumeHandle = "" } = data;
  if (!problem) await deps.drivers.driver(driverName).unpublish({ volumeId: volumeHandle, targetPath });
  else if (await ignoreNotFound(isMountPoint(deps.host, targetPath))) throw unreadableData("unmapper", path, problem);
  await removeUnmounted(deps, [targetPath]);
}

/** Unstages block volumes unless a pod has a link to one. @returns true if none is left. */
async function unstageBlockVolumes(
  deps: UnmounterDeps,
  { devices, linked }: CsiVolumes,
  id: string,
  signal: AbortSignal,
): Promise<boolean> {
  const own = [...devices].filter(([, one]) => isReadable(one) && volumeIdOf(one) === id);
  if (own.some(([name]) => linked.includes(name))) return false;
  for (const [name, one] of own) {
    if (!(await unmapOrphans(deps, blockVolumePaths(deps.rootDir, name).mapped, signal))) return false;
    await timed(
      deps.clock,
      () => unstageBlockVolume(deps, name, one, signal),
      (ms, failed) => deps.measures.deviceUnmapped(`${csiPluginName}:${one.data["driverName"] ?? ""}`, ms, failed),
    );
  }
  return true;
}

async function unstageBlockVolume(
  deps: UnpublishDeps,
  name: string,
  one: VolumeDataDirectory,
  signal: AbortSignal,
): Promise<void> {
  const { staged, published, mapped, data } = blockVolumePaths(deps.rootDir, name);
  // No pod has a link to the volume any more: the target paths that are left are unpublished.
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
  await host.fs.apply(paths.map((path) => ({ kind: "remove", path })));
}
