import type { StorageDriver } from "../../drivers.ts";
import {
  NodeServiceCapability_RPC_Type as Capability,
  VolumeCapability,
  VolumeCapability_AccessMode_Mode as AccessMode,
} from "../../gen/csi.ts";
import { CodedError, codeOf, hasCode, messageOf } from "../../lib/errors.ts";
import type { CSIDriver, PersistentVolume, Pod } from "../../objects.ts";
import { StepError } from "../failure.ts";
import { groupOf } from "../group.ts";
import type { SetUpDeps } from "../kinds/kind.ts";
import { podSubdirectory } from "../paths.ts";
import { attachmentName, isAttached, untilAttached } from "./csi-attachment.ts";
import { csiId, csiLeaving, csiPlugin } from "./csi-leaving.ts";
import type { PersistentKind, Use } from "./kind.ts";
import { giveTree } from "./ownership.ts";
import { publishedPath, removeMountDirectory, saveData, stagedPath } from "./volume-data.ts";

type Source = NonNullable<NonNullable<PersistentVolume["spec"]>["csi"]>;
type Capabilities = Awaited<ReturnType<StorageDriver["capabilities"]>>;
type Context = Readonly<Record<string, string>>;

const lifecycle = "Persistent";
const directoryMode = 0o750;

/** A volume of a storage driver: the driver stages it for the node where it can do that, and publishes it to each pod.
 *  @see https://kubernetes.io/docs/concepts/storage/volumes/#csi */
export const csi: PersistentKind = {
  plugin: csiPlugin,
  takesMountOptions: true,
  id: (volume) => csiId(sourceOf(volume)),
  leaving: csiLeaving,
  async stage(deps, use, signal) {
    const source = sourceOf(use.volume);
    const context = await contextOf(deps, use, source, signal);
    const staged = stagedPath(deps.rootDir, source.driver, source.volumeHandle);
    if (!deps.staging.isStanding(csiId(source)))
      await stage(deps, use, { source, context, staged }, signal).catch((error: unknown) => {
        throw new StepError("MountVolume.MountDevice failed", use.volume.metadata.name, error);
      });
    return staged;
  },
  async publish(deps, use, staged, signal) {
    const source = sourceOf(use.volume);
    const about = await deps.drivers.about(source.driver, signal).catch((error: unknown) => {
      throw own("mounter.SetupAt failed to check volume lifecycle mode: ", error);
    });
    checkLifecycle(source, about);
    const driver = driverOf(deps, source, "mounter.SetUpAt failed to get CSI client: ");
    const capabilities = await driver.capabilities();
    const path = publishedPath(deps.rootDir, use.pod.metadata.uid, use.volume.metadata.name);
    const context = await contextOf(deps, use, source, signal);
    const publishing = { source, about, capabilities, context, path };
    await publish(deps, use, { ...publishing, driver, staged }, signal);
    await giveToGroup(deps, use, publishing, signal);
    return { hostPath: path, ownSpace: capabilities.has(Capability.GET_VOLUME_STATS) };
  },
};

function sourceOf({ metadata, spec }: PersistentVolume): Source {
  if (spec?.csi) return spec.csi;
  throw new CodedError("failed_precondition", `volume source not found in volume.Spec of ${metadata.name}`);
}

function driverOf({ drivers }: SetUpDeps, { driver }: Source, what: string): StorageDriver {
  try {
    return drivers.driver(driver);
  } catch (error) {
    throw own(what, error);
  }
}

/** What the driver said when the volume was attached; waits for that. */
async function contextOf(deps: SetUpDeps, use: Use, source: Source, signal: AbortSignal): Promise<Context> {
  const about = await deps.drivers.about(source.driver, signal);
  return isAttached(about) ? untilAttached(deps, use, source, signal) : {};
}

interface Staging {
  readonly source: Source;
  readonly context: Context;
  readonly staged: string;
}

async function stage(
  deps: SetUpDeps,
  { pod, volume }: Use,
  { source, context, staged }: Staging,
  signal: AbortSignal,
): Promise<void> {
  const { host, staging } = deps;
  const driver = driverOf(deps, source, "attacher.MountDevice failed to create newCsiDriverClient: ");
  const capabilities = await driver.capabilities();
  if (!capabilities.has(Capability.STAGE_UNSTAGE_VOLUME)) return;
  const secrets = await secretsOf(deps, "NodeStageSecretRef", source.nodeStageSecretRef, signal);
  await saveData(host, staged, { volumeHandle: source.volumeHandle, driverName: source.driver }, signal);
  await host.fs.apply([{ do: "mkdir", path: staged, mode: directoryMode }], signal);
  const request = {
    volumeId: source.volumeHandle,
    publishContext: { ...context },
    stagingTargetPath: staged,
    volumeCapability: capabilityOf(volume, pod, capabilities),
    secrets,
    volumeContext: { ...source.volumeAttributes },
  };
  await driver.stage(request).catch((error: unknown) => undone(deps, staged, error));
  staging.stands(csiId(source));
}

interface Publishing {
  readonly source: Source;
  readonly about: CSIDriver | undefined;
  readonly capabilities: Capabilities;
  readonly context: Context;
  readonly path: string;
}

async function publish(
  deps: SetUpDeps,
  { pod, volume, readOnly }: Use,
  publishing: Publishing & { readonly driver: StorageDriver; readonly staged: string },
  signal: AbortSignal,
): Promise<void> {
  const { source, about, capabilities, context, path, driver, staged } = publishing;
  const { host, nodeName, rootDir } = deps;
  const secrets = await secretsOf(deps, "NodePublishSecretRef", source.nodePublishSecretRef, signal);
  const parent = { path: path.slice(0, path.lastIndexOf("/")), mode: directoryMode };
  await host.fs.apply(podSubdirectory(rootDir, pod.metadata.uid, "volumes", parent), signal);
  const data = {
    specVolID: volume.metadata.name,
    volumeHandle: source.volumeHandle,
    driverName: source.driver,
    nodeName,
    volumeLifecycleMode: lifecycle,
    attachmentID: attachmentName(source, nodeName),
  };
  await saveData(host, path, data, signal);
  const request = {
    volumeId: source.volumeHandle,
    publishContext: { ...context },
    stagingTargetPath: capabilities.has(Capability.STAGE_UNSTAGE_VOLUME) ? staged : "",
    targetPath: path,
    volumeCapability: capabilityOf(volume, pod, capabilities),
    readonly: readOnly,
    secrets,
    volumeContext: { ...source.volumeAttributes, ...(about?.spec.podInfoOnMount === true && podInfo(pod)) },
  };
  await driver.publish(request).catch((error: unknown) => undone(deps, path, error));
}

/** Forgets a mount that the driver did not make. One that it may still be making is taken back at the pod's end.
 *  @throws the error. */
async function undone({ host, log }: SetUpDeps, path: string, error: unknown): Promise<never> {
  const mayGoOn = ["cancelled", "deadline_exceeded", "unavailable", "resource_exhausted", "conflict"] as const;
  if (!hasCode(error, ...mayGoOn))
    await removeMountDirectory(host, path).catch((err: unknown) =>
      log.warn({ err, path }, "the directory of a volume that could not be mounted stays"),
    );
  throw error;
}

/** @throws failed_precondition for a driver that has no volumes of their own. */
function checkLifecycle({ driver }: Source, about: CSIDriver | undefined): void {
  const modes = about?.spec.volumeLifecycleModes ?? [lifecycle];
  if (modes.includes(lifecycle)) return;
  const list = `[${modes.map((mode) => JSON.stringify(mode)).join(" ")}]`;
  const why = `volume mode "${lifecycle}" not supported by driver ${driver} (only supports ${list})`;
  throw own("mounter.SetupAt failed to check volume lifecycle mode: ", new CodedError("failed_precondition", why));
}

function capabilityOf({ spec }: PersistentVolume, pod: Pod, capabilities: Capabilities): VolumeCapability {
  const group = capabilities.has(Capability.VOLUME_MOUNT_GROUP) ? groupOf(pod) : undefined;
  return VolumeCapability.fromPartial({
    accessMode: { mode: accessMode(spec?.accessModes?.[0] ?? "ReadWriteOnce", capabilities) },
    mount: {
      fsType: spec?.csi?.fsType ?? "",
      mountFlags: [...(spec?.mountOptions ?? [])],
      volumeMountGroup: group === undefined ? "" : String(group),
    },
  });
}

/** A driver that tells several pods of a node from one is told which of them is meant. */
function accessMode(mode: string, capabilities: Capabilities): AccessMode {
  const tellsPods = capabilities.has(Capability.SINGLE_NODE_MULTI_WRITER);
  switch (mode) {
    case "ReadWriteOnce":
      return tellsPods ? AccessMode.SINGLE_NODE_MULTI_WRITER : AccessMode.SINGLE_NODE_WRITER;
    case "ReadWriteOncePod":
      return tellsPods ? AccessMode.SINGLE_NODE_SINGLE_WRITER : AccessMode.SINGLE_NODE_WRITER;
    case "ReadOnlyMany":
      return AccessMode.MULTI_NODE_READER_ONLY;
    case "ReadWriteMany":
      return AccessMode.MULTI_NODE_MULTI_WRITER;
    default:
      return AccessMode.UNKNOWN;
  }
}

/** @throws CodedError in the kubelet's words. */
async function secretsOf(
  { objects }: SetUpDeps,
  what: string,
  reference: Source["nodeStageSecretRef"],
  signal: AbortSignal,
): Promise<Record<string, string>> {
  if (!reference) return {};
  const { namespace = "", name = "" } = reference;
  const secret = await objects.secret(namespace, name, signal).catch((error: unknown) => {
    const answer = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const why = `${csiPlugin}: failed to find the secret ${name} in the namespace ${namespace} with error: ${messageOf(answer)}`;
    throw new CodedError(codeOf(error), `fetching ${what} ${namespace}/${name} failed: ${why}`, { cause: error });
  });
  const decoded = Object.entries(secret.data ?? {}).map(
    ([key, value]) => [key, Buffer.from(value, "base64").toString("utf8")] as const,
  );
  return Object.fromEntries(decoded);
}

function podInfo({ metadata, spec }: Pod): Record<string, string> {
  return {
    "csi.storage.k8s.io/pod.name": metadata.name,
    "csi.storage.k8s.io/pod.namespace": metadata.namespace,
    "csi.storage.k8s.io/pod.uid": metadata.uid,
    "csi.storage.k8s.io/serviceAccount.name": spec.serviceAccountName ?? "",
    "csi.storage.k8s.io/ephemeral": "false",
  };
}

/** Gives the files to the pod's group, unless the driver has done that or says that it is not wanted. */
async function giveToGroup(
  deps: SetUpDeps,
  { pod, volume, readOnly }: Use,
  { source, about, capabilities, path }: Publishing,
  signal: AbortSignal,
): Promise<void> {
  const policy = about?.spec.fsGroupPolicy ?? "ReadWriteOnceWithFSType";
  if (capabilities.has(Capability.VOLUME_MOUNT_GROUP) || policy === "None" || readOnly) return;
  const isOnce = volume.spec?.accessModes?.some((mode) => mode === "ReadWriteOnce" || mode === "ReadWriteOncePod");
  if (policy !== "File" && (!source.fsType || !isOnce)) return;
  await giveTree(deps, pod, path, signal).catch((error: unknown) => {
    const why = `applyFSGroup failed for vol ${source.volumeHandle}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), why, { cause: error });
  });
}

function own(what: string, error: unknown): CodedError {
  return new CodedError(codeOf(error), `${csiPlugin}: ${what}${messageOf(error)}`, { cause: error });
}
