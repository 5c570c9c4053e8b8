import { posix } from "node:path";
import { type NodeStageVolumeRequest, NodeServiceCapability_RPC_Type as Capability } from "../../gen/csi.ts";
import type { CSIDriver } from "../../objects.ts";
import { VolumeStepError } from "../failure.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { checkNoLink } from "../paths.ts";
import { expandCsiVolume, csiSourceOf } from "./csi-expand.ts";
import { requiresAttachment, waitForAttachment } from "./csi-attachment.ts";
import { csiVolumeId, csiUnmounter, csiPluginName } from "./csi-unmounter.ts";
import {
  type CsiNodeCapabilities,
  type CsiVolume,
  readCsiDriver,
  capabilitiesOf,
  volumeCapabilityOf,
  volumeDataOf,
  labelData,
  registeredDriver,
  mountGroupOf,
  fetchSecretError,
  getSecretError,
  publishRequest,
  publishVolume,
  readSecrets,
  cleanUpFailedMount,
} from "./csi-publish.ts";
import { linkDevice } from "./device-link.ts";
import { type PersistentVolumePlugin, type VolumeUse, unstageOtherLabel } from "./plugin.ts";
import {
  blockVolumePaths,
  hasVolumeData,
  publishedPath,
  saveVolumeData,
  stagedPath,
  volumeDataAt,
} from "./csi-volume-data.ts";

type Context = Readonly<Record<string, string>>;

const directoryMode = 0o750;

/** A CSI volume: staged once per node if the driver supports it, then published to each pod.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#csi */
export const persistentCsi: PersistentVolumePlugin = {
  pluginName: csiPluginName,
  supportsMountOptions: true,
  selinux: {
    isSupported: async (deps, volume, signal) =>
      (await readCsiDriver(deps, csiSourceOf(volume).driver, signal))?.spec.seLinuxMount === true,
    async mountedLabel({ host, rootDir }, { pod, volume }, signal) {
      const path = publishedPath(rootDir, pod.metadata.uid, volume.metadata.name);
      return savedLabel(host, path, signal);
    },
  },
  id: (volume) => csiVolumeId(csiSourceOf(volume)),
  unmounter: csiUnmounter,
  async stage(deps, use, signal) {
    const source = csiSourceOf(use.volume);
    const { publishContext } = await waitUntilAttached(deps, use, signal);
    const staged = stagedPath(deps.rootDir, source.driver, source.volumeHandle);
    if (use.selinuxLabel !== undefined)
      await unstageOtherLabel(deps, persistentCsi, use, await savedLabel(deps.host, staged, signal), signal);
    if (!deps.volumeStates.isStaged(csiVolumeId(source)))
      await stage(deps, use, { context: publishContext, staged }, signal).catch((error: unknown) => {
        throw new VolumeStepError("MountVolume.MountDevice failed", use.volume.metadata.name, error);
      });
    return staged;
  },
  async publish(deps, use, staged, signal) {
    const source = csiSourceOf(use.volume);
    const { csiDriver, publishContext } = await waitUntilAttached(deps, use, signal);
    const volume = { ...volumeOf(use), context: publishContext, staged };
    const { capabilities, ...published } = await publishVolume(deps, use.pod, { volume, csiDriver }, signal);
    const { driver, volumeHandle } = source;
    return { ...published, ...(capabilities.has(Capability.GET_VOLUME_STATS) && { space: { driver, volumeHandle } }) };
  },
  setUpDevice,
  expand: expandCsiVolume,
};

/** The SELinux label in the metadata of a mount: empty without one, undefined if there is no metadata. */
async function savedLabel(host: SetUpDeps["host"], path: string, signal: AbortSignal): Promise<string | undefined> {
  const { volumeHandle, seLinuxMountContext = "" } = await volumeDataAt(host, path, signal);
  return volumeHandle === undefined ? undefined : seLinuxMountContext;
}

function volumeOf({ volume, readOnly, selinuxLabel }: VolumeUse): CsiVolume {
  const { driver, volumeHandle, fsType = "", volumeAttributes = {}, nodePublishSecretRef } = csiSourceOf(volume);
  return {
    name: volume.metadata.name,
    lifecycle: "Persistent",
    driver,
    volumeHandle,
    fsType,
    attributes: volumeAttributes,
    mountFlags: volume.spec?.mountOptions ?? [],
    selinuxLabel,
    accessModes: volume.spec?.accessModes ?? [],
    readOnly,
    isBlock: volume.spec?.volumeMode === "Block",
    ...(nodePublishSecretRef && { secret: nodePublishSecretRef }),
  };
}

/** Information from the cluster that staging and publishing need. */
interface AttachedVolume {
  /** The CSIDriver object of the volume's driver. */
  readonly csiDriver: CSIDriver | undefined;
  readonly publishContext: Context;
}

/** Reads the CSIDriver object of a volume's driver and, if the driver requires attachment, waits until the volume is attached. */
async function waitUntilAttached(deps: SetUpDeps, use: VolumeUse, signal: AbortSignal): Promise<AttachedVolume> {
  const source = csiSourceOf(use.volume);
  const csiDriver = await readCsiDriver(deps, source.driver, signal);
  if (!requiresAttachment(csiDriver)) {
    deps.volumeStates.clearInUse(csiVolumeId(source));
    return { csiDriver, publishContext: {} };
  }
  const publishContext = await waitForAttachment(deps, use, source, signal);
  return publishContext ? { csiDriver, publishContext } : waitUntilAttached(deps, use, signal);
}

async function stage(
  deps: SetUpDeps,
  use: VolumeUse,
  { context, staged }: { readonly context: Context; readonly staged: string },
  signal: AbortSignal,
): Promise<void> {
  const { host, volumeStates } = deps;
  const source = csiSourceOf(use.volume);
  const driver = registeredDriver(deps, source.driver, "attacher.MountDevice failed to create newCsiDriverClient: ");
  const capabilities = await driver.capabilities();
  if (!capabilities.has(Capability.STAGE_UNSTAGE_VOLUME)) return;
  const request = await stageRequest(deps, use, { context, staged, capabilities }, signal);
  const [isRepeated] = await Promise.all([
    hasVolumeData(host, staged, signal),
    checkNoLink({ host }, posix.dirname(staged), signal),
  ]);
  const data = { volumeHandle: source.volumeHandle, driverName: source.driver, ...labelData(use) };
  await saveVolumeData(host, staged, data, signal);
  await host.fs.apply([{ kind: "mkdir", path: staged, mode: directoryMode }], signal);
  await driver.stage(request).catch((error: unknown) => cleanUpFailedMount(deps, { path: staged, isRepeated }, error));
  volumeStates.markStaged(csiVolumeId(source));
}

async function stageRequest(
  deps: SetUpDeps,
  use: VolumeUse,
  {
    context,
    staged,
    capabilities,
  }: { readonly context: Context; readonly staged: string; readonly capabilities: CsiNodeCapabilities },
  signal: AbortSignal,
): Promise<NodeStageVolumeRequest> {
  const source = csiSourceOf(use.volume);
  const isBlock = use.volume.spec?.volumeMode === "Block";
  const [errorText, what] = isBlock
    ? [getSecretError, "failed to get NodeStageSecretRef"]
    : [fetchSecretError, "NodeStageSecretRef"];
  return {
    volumeId: source.volumeHandle,
    publishContext: { ...context },
    stagingTargetPath: staged,
    volumeCapability: volumeCapabilityOf(volumeOf(use), capabilities, mountGroupOf(use.pod, capabilities)),
    secrets: await readSecrets(deps, errorText(what), source.nodeStageSecretRef, signal),
    volumeContext: { ...source.volumeAttributes },
  };
}

/** Stages and publishes a block volume. The metadata and the pod's link are written first, so that everything can be undone
 *  after a crash. */
async function setUpDevice(deps: SetUpDeps, use: VolumeUse, signal: AbortSignal) {
  const info = await waitUntilAttached(deps, use, signal);
  const failed = (step: string) => (error: unknown) => {
    throw new VolumeStepError(`MapVolume.${step} failed`, use.volume.metadata.name, error);
  };
  await stageDevice(deps, use, info.publishContext, signal).catch(failed("SetUpDevice"));
  const { path, capabilities } = await publishDevice(deps, use, info, signal).catch(failed("MapPodDevice"));
  const { driver, volumeHandle } = csiSourceOf(use.volume);
  const directory = blockVolumePaths(deps.rootDir, use.volume.metadata.name).mapped;
  const space = { driver, volumeHandle, at: `${directory}/${use.pod.metadata.uid}` };
  return { device: path, directory, ...(capabilities.has(Capability.GET_VOLUME_STATS) && { space }) };
}

async function stageDevice(deps: SetUpDeps, use: VolumeUse, context: Context, signal: AbortSignal): Promise<void> {
  const { host, rootDir, volumeStates } = deps;
  const volume = volumeOf(use);
  const { staged, published, mapped, data } = blockVolumePaths(rootDir, volume.name);
  const driver = registeredDriver(deps, volume.driver, "blockMapper.SetUpDevice failed to get CSI client: ");
  const unknown = "blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: ";
  const capabilities = await capabilitiesOf(driver, unknown);
  const directories = [staged, published, posix.dirname(mapped)];
  await Promise.all(directories.map((path) => checkNoLink({ host }, path, signal)));
  await saveVolumeData(host, data, volumeDataOf(deps, volume), signal);
  if (!capabilities.has(Capability.STAGE_UNSTAGE_VOLUME) || volumeStates.isStaged(csiVolumeId(volume))) return;
  const request = await stageRequest(deps, use, { context, staged, capabilities }, signal);
  await host.fs.apply([{ kind: "mkdir", path: staged, mode: directoryMode, parents: true }], signal);
  await driver.stage(request);
  volumeStates.markStaged(csiVolumeId(volume));
}

/** @returns the device's path, and the driver's capabilities. */
async function publishDevice(
  deps: SetUpDeps,
  use: VolumeUse,
  { csiDriver, publishContext }: AttachedVolume,
  signal: AbortSignal,
): Promise<{ readonly path: string; readonly capabilities: CsiNodeCapabilities }> {
  const { host, rootDir } = deps;
  const volume = volumeOf(use);
  const { staged, published } = blockVolumePaths(rootDir, volume.name);
  const path = `${published}/${use.pod.metadata.uid}`;
  const driver = registeredDriver(deps, volume.driver, "blockMapper.MapPodDevice failed to get CSI client: ");
  const publishing = { csiDriver, capabilities: await driver.capabilities(), path };
  const request = await publishRequest(
    deps,
    use.pod,
    { ...volume, context: publishContext, staged },
    publishing,
    signal,
  );
  await host.fs.apply([{ kind: "mkdir", path: published, mode: directoryMode, parents: true }], signal);
  await linkDevice(deps, { pluginName: csiPluginName }, use, path, signal);
  await driver.publish(request);
  return { path, capabilities: publishing.capabilities };
}
