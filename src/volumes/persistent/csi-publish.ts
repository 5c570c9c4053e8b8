import { isUtf8 } from "node:buffer";
import type { CsiNodeService } from "../../pipeline.ts";
import {
  type NodePublishVolumeRequest,
  NodeServiceCapability_RPC_Type as Capability,
  VolumeCapability,
  VolumeCapability_AccessMode_Mode as AccessMode,
} from "../../gen/csi.ts";
import { supportsSelinuxLabels } from "../../host/mounts.ts";
import { CodedError, codeOf, hasCode, messageOf } from "../../lib/errors.ts";
import type { CSIDriver, Pod } from "../../objects.ts";
import { fsGroupOf } from "../fs-group.ts";
import type { SetUpDeps, VolumeDeps, VolumeReady } from "../plugins/plugin.ts";
import { labelOption } from "./plugin.ts";
import { checkNoLink, podSubdirectory } from "../paths.ts";
import { attachmentName } from "./csi-attachment.ts";
import { type CsiVolumeHandle, csiPluginError, csiPluginName } from "./csi-unmounter.ts";
import { applyFSGroup } from "./apply-fs-group.ts";
import {
  type VolumeData,
  hasVolumeData,
  publishedPath,
  removeMountDirectory,
  saveVolumeData,
} from "./csi-volume-data.ts";
import { rfc3339 } from "../../lib/rfc3339.ts";
import { sortedByKey } from "../../lib/sorted.ts";

/** A CSI volume with everything needed to publish it to a pod. */
export interface CsiVolume extends CsiVolumeHandle {
  /** Name of the PersistentVolume, or of the inline volume. */
  readonly name: string;
  readonly lifecycle: "Persistent" | "Ephemeral";
  readonly fsType: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly mountFlags: readonly string[];
  /** SELinux label to mount with. */
  readonly selinuxLabel?: string | undefined;
  readonly accessModes: readonly string[];
  readonly readOnly: boolean;
  /** True if containers use it as a block device. */
  readonly isBlock?: boolean;
  readonly secret?: { readonly namespace?: string; readonly name?: string };
  /** The publish context of its VolumeAttachment. */
  readonly context?: Readonly<Record<string, string>>;
  /** Its staging path, if the driver stages volumes. */
  readonly staged?: string;
}

/** Node service capabilities of a driver. */
export type CsiNodeCapabilities = Awaited<ReturnType<CsiNodeService["capabilities"]>>;

export interface PublishedVolume extends Pick<VolumeReady, "hostPath" | "refreshAt" | "unlabelled"> {
  readonly capabilities: CsiNodeCapabilities;
}

const directoryMode = 0o750;
/** Interval of repeated NodePublishVolume calls for drivers with requiresRepublish, milliseconds: that of the kubelet's pod
 *  syncs. */
const republishMs = 60_000;
const republishSpread = 1.5;

/** Has a driver publish a volume to a pod.
 *  @param csiDriver the driver's CSIDriver object. @throws CodedError in the kubelet's words.
 *  @see https://github.com/container-storage-interface/spec/blob/master/spec.md#nodepublishvolume */
export async function publishVolume(
  deps: SetUpDeps,
  pod: Pod,
  { volume, csiDriver }: { readonly volume: CsiVolume; readonly csiDriver: CSIDriver | undefined },
  signal: AbortSignal,
): Promise<PublishedVolume> {
  // The registration is checked first: a driver that is not installed yet has no CSIDriver object either.
  const driver = registeredDriver(deps, volume.driver, "mounter.SetUpAt failed to get CSI client: ");
  checkLifecycle(volume, csiDriver);
  const failedCheck =
    volume.lifecycle === "Persistent"
      ? "failed to check for STAGE_UNSTAGE_VOLUME capability"
      : "failed to determine if the node service has VOLUME_MOUNT_GROUP capability";
  const capabilities = await capabilitiesOf(driver, `mounter.SetUpAt ${failedCheck}: `);
  const path = publishedPath(deps.rootDir, pod.metadata.uid, volume.name);
  await callPublish(deps, pod, volume, { driver, csiDriver, capabilities, path }, signal);
  await applyDriverFSGroup(deps, pod, volume, { csiDriver, capabilities, path }, signal);
  const { clock, host } = deps;
  const unlabelled =
    (await deps.selinuxMounts.isEnabled(signal)) &&
    (Boolean(volume.selinuxLabel) || !(await supportsSelinuxLabels(host, path, signal)));
  const refreshAt = clock.now() + republishMs * clock.jitter(1, republishSpread);
  return {
    hostPath: path,
    capabilities,
    ...(unlabelled && { unlabelled }),
    ...(csiDriver?.spec.requiresRepublish === true && { refreshAt }),
  };
}

/** The CSIDriver object. @throws an error in the kubelet's words. */
export async function readCsiDriver({ drivers }: SetUpDeps, driver: string, signal: AbortSignal) {
  return drivers.csiDriver(driver, signal).catch((error: unknown) => {
    throw csiPluginError("mounter.SetupAt failed to check volume lifecycle mode: ", error);
  });
}

/** The registered driver. @param what the failed step, for the message. @throws CodedError in the kubelet's words. */
export function registeredDriver(
  { drivers }: Pick<VolumeDeps, "drivers">,
  driver: string,
  what: string,
): CsiNodeService {
  try {
    return drivers.driver(driver);
  } catch (error) {
    throw csiPluginError(what, error);
  }
}

/** Capabilities of a driver. @param what the failed step, for the message. @throws CodedError in the kubelet's words. */
export async function capabilitiesOf(driver: CsiNodeService, what: string): Promise<CsiNodeCapabilities> {
  return driver.capabilities().catch((error: unknown) => {
    throw csiPluginError(what, error);
  });
}

interface PublishInput {
  readonly driver: CsiNodeService;
  readonly csiDriver: CSIDriver | undefined;
  readonly capabilities: CsiNodeCapabilities;
  readonly path: string;
}

async function callPublish(
  deps: SetUpDeps,
  pod: Pod,
  volume: CsiVolume,
  { driver, csiDriver, capabilities, path }: PublishInput,
  signal: AbortSignal,
): Promise<void> {
  const { host, rootDir } = deps;
  const tokens = await serviceAccountTokens(deps, pod, csiDriver, signal);
  const request = await publishRequest(deps, pod, volume, { csiDriver, capabilities, path }, signal);
  const parent = { path: path.slice(0, path.lastIndexOf("/")), mode: directoryMode };
  await checkNoLink(deps, parent.path, signal);
  await host.fs.apply(podSubdirectory(rootDir, pod.metadata.uid, "volumes", parent), signal);
  const isRepeated = !deps.fresh && (await hasVolumeData(host, path, signal));
  await saveVolumeData(host, path, { ...volumeDataOf(deps, volume), volumeLifecycleMode: volume.lifecycle }, signal);
  const inSecrets = csiDriver?.spec.serviceAccountTokenInSecrets === true;
  const completeRequest = {
    ...request,
    secrets: { ...request.secrets, ...(inSecrets && tokens) },
    volumeContext: { ...request.volumeContext, ...(!inSecrets && tokens) },
  };
  await driver
    .publish(completeRequest)
    .catch((error: unknown) => cleanUpFailedMount(deps, { path, isRepeated }, error));
}

/** Metadata of a volume as a kubelet saves it in vol_data.json. Pure. */
export function volumeDataOf({ nodeName }: Pick<SetUpDeps, "nodeName">, volume: CsiVolume): VolumeData {
  return {
    specVolID: volume.name,
    volumeHandle: volume.volumeHandle,
    driverName: volume.driver,
    nodeName,
    attachmentID: attachmentName(volume, nodeName),
    ...labelData(volume),
  };
}

/** The SELinux label in the metadata of a mount. Pure. */
export function labelData({ selinuxLabel }: Pick<CsiVolume, "selinuxLabel">): VolumeData {
  return selinuxLabel ? { seLinuxMountContext: selinuxLabel } : {};
}

/** NodePublishVolume request for a target path. @throws CodedError in the kubelet's words. */
export async function publishRequest(
  deps: SetUpDeps,
  pod: Pod,
  volume: CsiVolume,
  { csiDriver, capabilities, path }: Omit<PublishInput, "driver">,
  signal: AbortSignal,
): Promise<NodePublishVolumeRequest> {
  const wantsPodInfo = csiDriver?.spec.podInfoOnMount === true;
  // For block volumes the staging path is always set, as in the kubelet.
  const isStaged = volume.isBlock || capabilities.has(Capability.STAGE_UNSTAGE_VOLUME);
  const what = "NodePublishSecretRef";
  const errorText = volume.isBlock
    ? getSecretError(`blockMapper.publishVolumeForBlock failed to get ${what}`)
    : fetchSecretError(what);
  return {
    volumeId: volume.volumeHandle,
    publishContext: { ...volume.context },
    stagingTargetPath: isStaged ? (volume.staged ?? "") : "",
    targetPath: path,
    volumeCapability: volumeCapabilityOf(volume, capabilities, mountGroupOf(pod, capabilities)),
    readonly: volume.readOnly,
    secrets: await readSecrets(deps, errorText, volume.secret, signal),
    volumeContext: { ...volume.attributes, ...(wantsPodInfo && podInfo(pod, volume)) },
  };
}

/** Removes the directory of a mount that the driver failed to make. If the driver may still be working on it, or may have mounted
 *  it earlier, the directory stays, and the volume is unpublished when the pod ends.
 *  @param path the mount. @param isRepeated true if the driver was asked to mount it before. @throws the given error. */
export async function cleanUpFailedMount(
  { host, log }: SetUpDeps,
  { path, isRepeated }: { readonly path: string; readonly isRepeated: boolean },
  error: unknown,
): Promise<never> {
  const mayStillSucceed = ["cancelled", "deadline_exceeded", "unavailable", "resource_exhausted", "conflict"] as const;
  if (!isRepeated && !hasCode(error, ...mayStillSucceed))
    await removeMountDirectory(host, path).catch((err: unknown) =>
      log.debug({ err, path }, "cannot remove the directory of a volume that failed to mount"),
    );
  throw error;
}

/** @throws failed_precondition if the driver does not support the volume's lifecycle mode. */
function checkLifecycle({ driver, lifecycle }: CsiVolume, csiDriver: CSIDriver | undefined): void {
  const modes = csiDriver?.spec.volumeLifecycleModes ?? ["Persistent"];
  if (lifecycle === "Persistent" ? modes.includes(lifecycle) : csiDriver && modes.includes(lifecycle)) return;
  const list = modes.map((mode) => JSON.stringify(mode)).join(" ");
  const why = csiDriver ? `only supports [${list}]` : "no CSIDriver object";
  throw csiPluginError(
    "mounter.SetupAt failed to check volume lifecycle mode: ",
    new CodedError("failed_precondition", `volume mode "${lifecycle}" not supported by driver ${driver} (${why})`),
  );
}

/** The fsGroup that the driver applies itself (VOLUME_MOUNT_GROUP); undefined if it does not. Pure. */
export function mountGroupOf(pod: Pod, capabilities: CsiNodeCapabilities): number | undefined {
  return capabilities.has(Capability.VOLUME_MOUNT_GROUP) ? fsGroupOf(pod) : undefined;
}

/** Volume capability of a request. Pure. */
export function volumeCapabilityOf(
  volume: Pick<CsiVolume, "accessModes" | "isBlock" | "fsType" | "mountFlags" | "selinuxLabel">,
  capabilities: CsiNodeCapabilities,
  group?: number,
): VolumeCapability {
  const mode = { accessMode: { mode: accessMode(volume.accessModes[0] ?? "ReadWriteOnce", capabilities) } };
  if (volume.isBlock) return VolumeCapability.fromPartial({ ...mode, block: {} });
  return VolumeCapability.fromPartial({
    ...mode,
    mount: {
      fsType: volume.fsType,
      mountFlags: [...volume.mountFlags, ...labelOption(volume.selinuxLabel)],
      volumeMountGroup: group === undefined ? "" : String(group),
    },
  });
}

/** Drivers with SINGLE_NODE_MULTI_WRITER distinguish one pod per node from several. */
function accessMode(mode: string, capabilities: CsiNodeCapabilities): AccessMode {
  const hasMultiWriter = capabilities.has(Capability.SINGLE_NODE_MULTI_WRITER);
  switch (mode) {
    case "ReadWriteOnce":
      return hasMultiWriter ? AccessMode.SINGLE_NODE_MULTI_WRITER : AccessMode.SINGLE_NODE_WRITER;
    case "ReadWriteOncePod":
      return hasMultiWriter ? AccessMode.SINGLE_NODE_SINGLE_WRITER : AccessMode.SINGLE_NODE_WRITER;
    case "ReadOnlyMany":
      return AccessMode.MULTI_NODE_READER_ONLY;
    case "ReadWriteMany":
      return AccessMode.MULTI_NODE_MULTI_WRITER;
    default:
      return AccessMode.UNKNOWN;
  }
}

/** Error text for an unreadable secret of a mount. @param what name of the field that refers to the secret. */
export function fetchSecretError(what: string): (secret: string, why: string) => string {
  return (secret, why) => `fetching ${what} ${secret} failed: ${why}`;
}

/** Error text for a secret of a block volume. @param what the failed step. */
export function getSecretError(what: string): (secret: string, why: string) => string {
  return (secret, why) => `${csiPluginName}: ${what} ${secret}: ${why}`;
}

/** Content of a secret that a volume refers to. @param errorText formats the error text. @throws CodedError with that text. */
export async function readSecrets(
  { objects }: Pick<VolumeDeps, "objects">,
  errorText: (secret: string, why: string) => string,
  reference: CsiVolume["secret"],
  signal: AbortSignal,
): Promise<Record<string, string>> {
  if (!reference) return {};
  const { namespace = "", name = "" } = reference;
  const secret = await objects.secret(namespace, name, signal).catch((error: unknown) => {
    const answer = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const why = `${csiPluginName}: failed to find the secret ${name} in the namespace ${namespace} with error: ${messageOf(answer)}`;
    throw new CodedError(codeOf(error), errorText(`${namespace}/${name}`, why), { cause: error });
  });
  return Object.fromEntries(
    Object.entries(secret.data ?? {}).map(([key, value]) => {
      const bytes = Buffer.from(value, "base64");
      if (isUtf8(bytes)) return [key, bytes.toString()] as const;
      // Invalid UTF-8 cannot be sent unchanged.
      const why = `${csiPluginName}: key ${key} of the secret is not valid UTF-8, as CSI requires`;
      throw new CodedError("invalid_argument", errorText(`${namespace}/${name}`, why));
    }),
  );
}

function podInfo({ metadata, spec }: Pod, { lifecycle }: CsiVolume): Record<string, string> {
  return {
    "csi.storage.k8s.io/pod.name": metadata.name,
    "csi.storage.k8s.io/pod.namespace": metadata.namespace,
    "csi.storage.k8s.io/pod.uid": metadata.uid,
    "csi.storage.k8s.io/serviceAccount.name": spec.serviceAccountName ?? "",
    "csi.storage.k8s.io/ephemeral": String(lifecycle === "Ephemeral"),
  };
}

/** Applies the pod's fsGroup, unless the driver does so itself or its policy excludes it. */
async function applyDriverFSGroup(
  deps: SetUpDeps,
  pod: Pod,
  { accessModes, fsType, readOnly, volumeHandle }: CsiVolume,
  { csiDriver, capabilities, path }: Omit<PublishInput, "driver">,
  signal: AbortSignal,
): Promise<void> {
  const policy = csiDriver?.spec.fsGroupPolicy ?? "ReadWriteOnceWithFSType";
  if (capabilities.has(Capability.VOLUME_MOUNT_GROUP) || policy === "None" || readOnly) return;
  const isOnce = accessModes.some((mode) => mode === "ReadWriteOnce" || mode === "ReadWriteOncePod");
  if (policy !== "File" && (fsType === "" || !isOnce)) return;
  await applyFSGroup(deps, pod, path, signal).catch((error: unknown) => {
    const why = `applyFSGroup failed for vol ${volumeHandle}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), why, { cause: error });
  });
}

/** Default lifetime of a token in seconds, the same as the API server's. */
const defaultTokenSeconds = 3_600;

/** Service account tokens that a driver requests, by audience, as one entry of its volume context; empty if it requests none.
 *  @throws CodedError in the kubelet's words.
 *  @see https://kubernetes-csi.github.io/docs/token-requests.html */
async function serviceAccountTokens(
  { tokens }: SetUpDeps,
  pod: Pod,
  csiDriver: CSIDriver | undefined,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  const tokenRequests = csiDriver?.spec.tokenRequests ?? [];
  if (tokenRequests.length === 0) return {};
  try {
    const given = tokenRequests.map(async ({ audience, expirationSeconds = defaultTokenSeconds }) => {
      const { token, expiresAt } = await tokens.token(pod, { audience, expirationSeconds }, signal);
      return [audience, { token, expirationTimestamp: rfc3339(expiresAt) }] as const;
    });
    const byAudience = Object.fromEntries(await Promise.all(given));
    return { "csi.storage.k8s.io/serviceAccount.tokens": JSON.stringify(sortedByKey(byAudience)) };
  } catch (error) {
    throw csiPluginError("mounter.SetUpAt failed to get service accoount token attributes: ", error);
  }
}
