import { createHash } from "node:crypto";
import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { CSIDriver } from "../../objects.ts";
import { VolumeStepError } from "../failure.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";
import { type CsiVolumeHandle, csiVolumeId, csiPluginName } from "./csi-unmounter.ts";
import { waitUntilAttachedInNode } from "./node-attachment.ts";
import type { VolumeUse } from "./plugin.ts";

/** Number of polls after which the CSIDriver object is read as well: it may have changed. */
const pollsPerDriverRead = 20;

/** gRPC status code of a controller that reports the node's attachment limit as reached. */
const resourceExhausted = 8;

/** Name of the VolumeAttachment of a volume on a node. Pure. */
export function attachmentName({ driver, volumeHandle }: CsiVolumeHandle, nodeName: string): string {
  return `csi-${createHash("sha256").update(`${volumeHandle}${driver}${nodeName}`).digest("hex")}`;
}

/** True if the cluster attaches the driver's volumes to nodes: the default unless the CSIDriver says otherwise. Pure. */
export function requiresAttachment(csiDriver: CSIDriver | undefined): boolean {
  return csiDriver?.spec.attachRequired !== false;
}

/** Waits until the control plane has attached a volume to the node.
 *  @returns the publish context of the attachment; undefined if the driver no longer requires attachment. @throws VolumeStepError with
 *  the kubelet's reasons; VolumePendingError if the signal aborts first.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/volume-attachment-v1/ */
export async function waitForAttachment(
  deps: SetUpDeps,
  { pod, volume }: VolumeUse,
  handle: CsiVolumeHandle,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>> | undefined> {
  const id = csiVolumeId(handle);
  const name = `${csiPluginName}/${id}`;
  deps.onAwaitingAttach((stop) => isLimitReached(deps, handle, stop));
  const isAttached = await waitUntilAttachedInNode(
    deps,
    { id, uid: pod.metadata.uid, name },
    signal,
    async (polls) => polls % pollsPerDriverRead === 0 && (await needsNoAttachment(deps, handle, signal)),
  );
  deps.onAwaitingAttach(undefined);
  if (!isAttached) return undefined;
  try {
    return await readPublishContext(deps, handle, signal);
  } catch (error) {
    const operation = volume.spec?.volumeMode === "Block" ? "MapVolume" : "MountVolume";
    throw new VolumeStepError(`${operation}.WaitForAttach failed`, volume.metadata.name, error);
  }
}

/** True if the driver no longer requires attachment; false while its CSIDriver cannot be read. */
async function needsNoAttachment(
  { drivers }: SetUpDeps,
  { driver }: CsiVolumeHandle,
  signal: AbortSignal,
): Promise<boolean> {
  return !requiresAttachment(await drivers.csiDriver(driver, signal).catch(() => undefined));
}

/** True if the control plane has reported the attachment limit as reached, and the driver opted in to limit updates: its limit
 *  is then read again. */
async function isLimitReached(deps: SetUpDeps, handle: CsiVolumeHandle, signal: AbortSignal): Promise<boolean> {
  const { drivers, log, nodeName } = deps;
  const { driver } = handle;
  try {
    const csiDriver = await drivers.csiDriver(driver, signal);
    if (!csiDriver?.spec.nodeAllocatableUpdatePeriodSeconds) return false;
    const { status } = await drivers.volumeAttachment(attachmentName(handle, nodeName), signal);
    if (status?.attachError?.errorCode !== resourceExhausted) return false;
  } catch (err) {
    log.debug({ err, driver }, "cannot read why a volume is not attached");
    return false;
  }
  await drivers.refreshLimit(driver, signal).catch((err: unknown) => {
    log.warn({ err, driver }, "cannot update the volume limit of a CSI driver");
  });
  return true;
}

async function readPublishContext({ drivers, nodeName }: SetUpDeps, handle: CsiVolumeHandle, signal: AbortSignal) {
  const name = attachmentName(handle, nodeName);
  const { volumeHandle } = handle;
  const { metadata, status } = await drivers.volumeAttachment(name, signal).catch((error: unknown) => {
    const what = `volume ${volumeHandle} has GET error for volume attachment ${name}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), what, { cause: error });
  });
  const refuse = (why: string) => new CodedError("failed_precondition", why);
  if (metadata.deletionTimestamp !== undefined) throw refuse("volume attachment is being deleted");
  if (status?.attached) return status.attachmentMetadata ?? {};
  if (status?.attachError) throw refuse(status.attachError.message ?? "");
  throw refuse(`volume ${volumeHandle} is not attached for volume attachment ${name}`);
}
