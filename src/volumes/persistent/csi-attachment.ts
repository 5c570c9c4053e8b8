import { createHash } from "node:crypto";
import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { CSIDriver, Node } from "../../objects.ts";
import { NotYetError, StepError } from "../failure.ts";
import type { SetUpDeps } from "../kinds/kind.ts";
import { type Handle, csiId, csiPlugin } from "./csi-leaving.ts";
import type { Use } from "./kind.ts";

/** Interval of looks at the Node, which is watched, milliseconds: the kubelet's. */
const lookMs = 100;

/** Looks after which the driver's own object is asked for, too: it may have changed. */
const looksPerDriver = 20;

/** The status code of gRPC with which a controller says that a node can have no more volumes. */
const resourceExhausted = 8;

/** Name of the object that tells of a volume's attachment to a node. Pure. */
export function attachmentName({ driver, volumeHandle }: Handle, nodeName: string): string {
  return `csi-${createHash("sha256").update(`${volumeHandle}${driver}${nodeName}`).digest("hex")}`;
}

/** True when the cluster attaches a driver's volumes to nodes: unless the driver says that there is nothing to do. Pure. */
export function isAttached(about: CSIDriver | undefined): boolean {
  return about?.spec.attachRequired !== false;
}

/** Waits until the control plane has attached a volume to the node.
 *  @returns what the driver said of it then; undefined when the driver has come to want no attachment meanwhile. @throws StepError with the kubelet's reasons; NotYetError when the signal aborts first.
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

/** True when the driver wants no attachment by now; it counts as unchanged while it cannot be read. */
async function isNoLongerAttached({ drivers }: SetUpDeps, { driver }: Handle, signal: AbortSignal): Promise<boolean> {
  return !isAttached(await drivers.about(driver, signal).catch(() => undefined));
}

/** True when the Node shows the volume in use, so that nobody detaches it, and attached. */
function showsAttached(node: Node | undefined, name: string): boolean {
  const { volumesInUse = [], volumesAttached = [] } = node?.status ?? {};
  return volumesInUse.includes(name) && volumesAttached.some((one) => one.name === name);
}

/** True when the control plane has said that the node can have no more of a driver's volumes, and the driver wants its limit kept true:
 *  it is asked for that anew. */
async function isExhausted(deps: SetUpDeps, handle: Handle, signal: AbortSignal): Promise<boolean> {
  const { drivers, log, nodeName } = deps;
  const { driver } = handle;
  try {
    const about = await drivers.about(driver, signal);
    if (!about?.spec.nodeAllocatableUpdatePeriodSeconds) return false;
    const { status } = await drivers.attachment(attachmentName(handle, nodeName), signal);
    if (status?.attachError?.errorCode !== resourceExhausted) return false;
  } catch (err) {
    log.debug({ err, driver }, "why a volume is not attached cannot be read");
    return false;
  }
  await drivers.refresh(driver, signal).catch((err: unknown) => {
    log.warn({ err, driver }, "a storage driver's limit could not be updated");
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
