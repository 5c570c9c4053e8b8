import { posix } from "node:path";
import { type NodeStageVolumeRequest, NodeServiceCapability_RPC_Type as Capability } from "../../gen/csi.ts";
import type { CSIDriver } from "../../objects.ts";
import { StepError } from "../failure.ts";
import type { SetUpDeps } from "../kinds/kind.ts";
import { checkNoLink } from "../paths.ts";
import { expandCsi } from "./csi-expand.ts";
import { isAttached, untilAttached } from "./csi-attachment.ts";
import { csiId, csiLeaving, csiPlugin } from "./csi-leaving.ts";
import { sourceOf } from "./csi-source.ts";
import {
  type Capabilities,
  type DriverVolume,
  aboutOf,
  capabilitiesOf,
  capabilityOf,
  dataOf,
  driverOf,
  mountGroupOf,
  notFetched,
  notGot,
  publishRequest,
  publishVolume,
  secretsOf,
  undone,
} from "./csi-publish.ts";
import { linkDevice } from "./device-link.ts";
import type { PersistentKind, Use } from "./kind.ts";
import { blockPlaces, isWritten, saveData, stagedPath } from "./volume-data.ts";

type Context = Readonly<Record<string, string>>;

const directoryMode = 0o750;

/** A CSI volume: staged once per node if the driver supports it, then published to each pod.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#csi */
export const csi: PersistentKind = {
  plugin: csiPlugin,
  takesMountOptions: true,
  id: (volume) => csiId(sourceOf(volume)),
  leaving: csiLeaving,
  async stage(deps, use, signal) {
    const source = sourceOf(use.volume);
    const { context } = await knownOf(deps, use, signal);
    const staged = stagedPath(deps.rootDir, source.driver, source.volumeHandle);
    if (!deps.staging.isStanding(csiId(source)))
      await stage(deps, use, { context, staged }, signal).catch((error: unknown) => {
        throw new StepError("MountVolume.MountDevice failed", use.volume.metadata.name, error);
      });
    return staged;
  },
  async publish(deps, use, staged, signal) {
    const source = sourceOf(use.volume);
    const { about, context } = await knownOf(deps, use, signal);
    const volume = { ...volumeOf(use), context, staged };
    const { capabilities, ...published } = await publishVolume(deps, use.pod, { volume, about }, signal);
    const { driver, volumeHandle } = source;
    return { ...published, ...(capabilities.has(Capability.GET_VOLUME_STATS) && { space: { driver, volumeHandle } }) };
  },
  device,
  expand: expandCsi,
};

function volumeOf({ volume, readOnly }: Use): DriverVolume {
  const { driver, volumeHandle, fsType = "", volumeAttributes = {}, nodePublishSecretRef } = sourceOf(volume);
  return {
    name: volume.metadata.name,
    lifecycle: "Persistent",
    driver,
    volumeHandle,
    fsType,
    attributes: volumeAttributes,
    mountFlags: volume.spec?.mountOptions ?? [],
    accessModes: volume.spec?.accessModes ?? [],
    readOnly,
    isBlock: volume.spec?.volumeMode === "Block",
    ...(nodePublishSecretRef && { secret: nodePublishSecretRef }),
  };
}

/** Information from the cluster that staging and publishing need. */
interface Known {
  /** Its driver's object. */
  readonly about: CSIDriver | undefined;
  /** The publish context of the VolumeAttachment. */
  readonly context: Context;
}

/** Reads what the cluster knows of a volume; waits until it is attached, if the driver requires that. */
async function knownOf(deps: SetUpDeps, use: Use, signal: AbortSignal): Promise<Known> {
  const source = sourceOf(use.volume);
  const about = await aboutOf(deps, source.driver, signal);
  if (!isAttached(about)) {
    deps.staging.usesNot(csiId(source));
    return { about, context: {} };
  }
  const context = await untilAttached(deps, use, source, signal);
  return context ? { about, context } : knownOf(deps, use, signal);
}

async function stage(
  deps: SetUpDeps,
  use: Use,
  { context, staged }: { readonly context: Context; readonly staged: string },
  signal: AbortSignal,
): Promise<void> {
  const { host, staging } = deps;
  const source = sourceOf(use.volume);
  const driver = driverOf(deps, source.driver, "attacher.MountDevice failed to create newCsiDriverClient: ");
  const capabilities = await driver.capabilities();
  if (!capabilities.has(Capability.STAGE_UNSTAGE_VOLUME)) return;
  const request = await stageRequest(deps, use, { context, staged, capabilities }, signal);
  const [isRepeated] = await Promise.all([
    isWritten(host, staged, signal),
    checkNoLink({ host }, posix.dirname(staged), signal),
  ]);
  await saveData(host, staged, { volumeHandle: source.volumeHandle, driverName: source.driver }, signal);
  await host.fs.apply([{ do: "mkdir", path: staged, mode: directoryMode }], signal);
  await driver.stage(request).catch((error: unknown) => undone(deps, { path: staged, isRepeated }, error));
  staging.stands(csiId(source));
}

interface Staging {
  readonly context: Context;
  readonly staged: string;
  readonly capabilities: Capabilities;
}

async function stageRequest(
  deps: SetUpDeps,
  use: Use,
  { context, staged, capabilities }: Staging,
  signal: AbortSignal,
): Promise<NodeStageVolumeRequest> {
  const source = sourceOf(use.volume);
  const isBlock = use.volume.spec?.volumeMode === "Block";
  const [told, what] = isBlock ? [notGot, "failed to get NodeStageSecretRef"] : [notFetched, "NodeStageSecretRef"];
  return {
    volumeId: source.volumeHandle,
    publishContext: { ...context },
    stagingTargetPath: staged,
    volumeCapability: capabilityOf(volumeOf(use), capabilities, mountGroupOf(use.pod, capabilities)),
    secrets: await secretsOf(deps, told(what), source.nodeStageSecretRef, signal),
    volumeContext: { ...source.volumeAttributes },
  };
}

/** Stages and publishes a block volume. The metadata and the pod's link are written first, so that everything can be undone
 *  after a crash. */
async function device(deps: SetUpDeps, use: Use, signal: AbortSignal) {
  const known = await knownOf(deps, use, signal);
  const failed = (step: string) => (error: unknown) => {
    throw new StepError(`MapVolume.${step} failed`, use.volume.metadata.name, error);
  };
  await setUpDevice(deps, use, known.context, signal).catch(failed("SetUpDevice"));
  const { path, capabilities } = await publishDevice(deps, use, known, signal).catch(failed("MapPodDevice"));
  const { driver, volumeHandle } = sourceOf(use.volume);
  const directory = blockPlaces(deps.rootDir, use.volume.metadata.name).mapped;
  const space = { driver, volumeHandle, at: `${directory}/${use.pod.metadata.uid}` };
  return { device: path, directory, ...(capabilities.has(Capability.GET_VOLUME_STATS) && { space }) };
}

async function setUpDevice(deps: SetUpDeps, use: Use, context: Context, signal: AbortSignal): Promise<void> {
  const { host, rootDir, staging } = deps;
  const volume = volumeOf(use);
  const { staged, published, mapped, data } = blockPlaces(rootDir, volume.name);
  const driver = driverOf(deps, volume.driver, "blockMapper.SetUpDevice failed to get CSI client: ");
  const unknown = "blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: ";
  const capabilities = await capabilitiesOf(driver, unknown);
  const places = [staged, published, posix.dirname(mapped)];
  await Promise.all(places.map((path) => checkNoLink({ host }, path, signal)));
  await saveData(host, data, dataOf(deps, volume), signal);
  if (!capabilities.has(Capability.STAGE_UNSTAGE_VOLUME) || staging.isStanding(csiId(volume))) return;
  const request = await stageRequest(deps, use, { context, staged, capabilities }, signal);
  await host.fs.apply([{ do: "mkdir", path: staged, mode: directoryMode, parents: true }], signal);
  await driver.stage(request);
  staging.stands(csiId(volume));
}

/** @returns the device's path, and the driver's capabilities. */
async function publishDevice(
  deps: SetUpDeps,
  use: Use,
  { about, context }: Known,
  signal: AbortSignal,
): Promise<{ readonly path: string; readonly capabilities: Capabilities }> {
  const { host, rootDir } = deps;
  const volume = volumeOf(use);
  const { staged, published } = blockPlaces(rootDir, volume.name);
  const path = `${published}/${use.pod.metadata.uid}`;
  const driver = driverOf(deps, volume.driver, "blockMapper.MapPodDevice failed to get CSI client: ");
  const publishing = { about, capabilities: await driver.capabilities(), path };
  const request = await publishRequest(deps, use.pod, { ...volume, context, staged }, publishing, signal);
  await host.fs.apply([{ do: "mkdir", path: published, mode: directoryMode, parents: true }], signal);
  await linkDevice(deps, { plugin: csiPlugin }, use, path, signal);
  await driver.publish(request);
  return { path, capabilities: publishing.capabilities };
}
