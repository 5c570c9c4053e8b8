import { createHash } from "node:crypto";
import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { CSIDriver, Node } from "../../objects.ts";
import { NotYetError, StepError } from "../failure.ts";
import type { SetUpDeps } from "../kinds/kind.ts";
import { type Handle, csiId, csiPlugin } from "./csi-leaving.ts";
import type { Use } from "./kind.ts";

/** Poll interval of the watched Node object, milliseconds: the kubelet's. */
const lookMs = 100;

/** Number of polls after which the CSIDriver object is read as well: it may have changed. */
const looksPerDriver = 20;

/** gRPC status code of a controller that reports the node's attachment limit as reached. */
const resourceExhausted = 8;

/** Name of the VolumeAttachment of a volume on a node. Pure. */
export function attachmentName({ driver, volumeHandle }: Handle, nodeName: string): string {
  return `csi-${createHash("sha256").update(`${volumeHandle}${driver}${nodeName}`).digest("hex")}`;
}

/** True if the cluster attaches the driver's volumes to nodes: the default unless the CSIDriver says otherwise. Pure. */
export function isAttached(about: CSIDriver | undefined): boolean {
  return about?.spec.attachRequired !== false;
}

/** Waits until the control plane has attached a volume to the node.
 *  @returns the publish context of the attachment; undefined if the driver no longer requires attachment. @throws StepError with
 *  the kubelet's reasons; VolumePendingError if the signal aborts first.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/volume-attachment-v1/ */
export async function untilAttached(
  deps: SetUpDeps,
  { pod, volume }: Use,
  handle: Handle,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>> | undefined> {
  const id = csiId(handle);
  const name = `${csiPlugin}/${id}`;
  deps.staging.uses(id, pod.metadata.uid, name);
  deps.awaiting((stop) => isExhausted(deps, handle, stop));
  for (let looks = 1; !showsAttached(deps.node(), name); looks += 1) {
    await deps.clock.sleep(lookMs, signal).catch(() => {
      throw new NotYetError(`volume ${name} is not yet in node's status`);
    });
    if (looks % looksPerDriver === 0 && (await isNoLongerAttached(deps, handle, signal))) {
      deps.awaiting(undefined);
      return undefined;
    }
  }
  deps.awaiting(undefined);
  try {
    return await attachment(deps, handle, signal);
  } catch (error) {
    const operation = volume.spec?.volumeMode === "Block" ? "MapVolume" : "MountVolume";
    throw new StepError(`${operation}.WaitForAttach failed`, volume.metadata.name, error);
  }
}

/** True if the driver no longer requires attachment; false while its CSIDriver cannot be read. */
async function isNoLongerAttached({ drivers }: SetUpDeps, { driver }: Handle, signal: AbortSignal): Promise<boolean> {
  return !isAttached(await drivers.about(driver, signal).catch(() => undefined));
}

/** True if the Node lists the volume in both volumesInUse, which prevents a detach, and volumesAttached. */
function showsAttached(node: Node | undefined, name: string): boolean {
  const { volumesInUse = [], volumesAttached = [] } = node?.status ?? {};
  return volumesInUse.includes(name) && volumesAttached.some((one) => one.name === name);
}

/** True if the control plane has reported the attachment limit as reached, and the driver opted in to limit updates: its limit
 *  is then read again. */
async function isExhausted(deps: SetUpDeps, handle: Handle, signal: AbortSignal): Promise<boolean> {
  const { drivers, log, nodeName } = deps;
  const { driver } = handle;
  try {
    const about = await drivers.about(driver, signal);
    if (!about?.spec.nodeAllocatableUpdatePeriodSeconds) return false;
    const { status } = await drivers.attachment(attachmentName(handle, nodeName), signal);
    if (status?.attachError?.errorCode !== resourceExhausted) return false;
  } catch (err) {
    log.debug({ err, driver }, "cannot read why a volume is not attached");
    return false;
  }
  await drivers.refresh(driver, signal).catch((err: unknown) => {
    log.warn({ err, driver }, "cannot update the volume limit of a CSI driver");
  });
  return true;
}

async function attachment({ drivers, nodeName }: SetUpDeps, handle: Handle, signal: AbortSignal) {
  const name = attachmentName(handle, nodeName);
  const { volumeHandle } = handle;
  const { metadata, status } = await drivers.attachment(name, signal).catch((error: unknown) => {
    const what = `volume ${volumeHandle} has GET error for volume attachment ${name}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), what, { cause: error });
  });
  const refuse = (why: string) => new CodedError("failed_precondition", why);
  if (metadata.deletionTimestamp !== undefined) throw refuse("volume attachment is being deleted");
  if (status?.attached) return status.attachmentMetadata ?? {};
  if (status?.attachError) throw refuse(status.attachError.message ?? "");
  throw refuse(`volume ${volumeHandle} is not attached for volume attachment ${name}`);
}
