import { createHash } from "node:crypto";
import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { CSIDriver, Node } from "../../objects.ts";
import { NotYetError, StepError } from "../failure.ts";
import type { SetUpDeps } from "../kinds/kind.ts";
import { csiId, csiPlugin } from "./csi-leaving.ts";
import type { Use } from "./kind.ts";

/** Interval of looks at the Node, which is watched, milliseconds: the kubelet's. */
const lookMs = 100;

/** A driver's volume. */
export interface Handle {
  readonly driver: string;
  readonly volumeHandle: string;
}

/** Name of the object that tells of a volume's attachment to a node. Pure. */
export function attachmentName({ driver, volumeHandle }: Handle, nodeName: string): string {
  return `csi-${createHash("sha256").update(`${volumeHandle}${driver}${nodeName}`).digest("hex")}`;
}

/** True when the cluster attaches a driver's volumes to nodes: unless the driver says that there is nothing to do. Pure. */
export function isAttached(about: CSIDriver | undefined): boolean {
  return about?.spec.attachRequired !== false;
}

/** Waits until the control plane has attached a volume to the node.
 *  @returns what the driver said of it then. @throws StepError with the kubelet's reasons; NotYetError when the signal aborts first.
 *  @see https://kubernetes.io/docs/reference/kubernetes-api/config-and-storage-resources/volume-attachment-v1/ */
export async function untilAttached(
  deps: SetUpDeps,
  { pod, volume }: Use,
  handle: Handle,
  signal: AbortSignal,
): Promise<Readonly<Record<string, string>>> {
  const id = csiId(handle);
  const name = `${csiPlugin}/${id}`;
  deps.staging.uses(id, pod.metadata.uid, name);
  while (!showsAttached(deps.node(), name))
    await deps.clock.sleep(lookMs, signal).catch(() => {
      throw new NotYetError(`volume ${name} is not yet in node's status`);
    });
  try {
    return await attachment(deps, handle, signal);
  } catch (error) {
    const operation = volume.spec?.volumeMode === "Block" ? "MapVolume" : "MountVolume";
    throw new StepError(`${operation}.WaitForAttach failed`, volume.metadata.name, error);
  }
}

/** True when the Node shows the volume in use, so that nobody detaches it, and attached. */
function showsAttached(node: Node | undefined, name: string): boolean {
  const { volumesInUse = [], volumesAttached = [] } = node?.status ?? {};
  return volumesInUse.includes(name) && volumesAttached.some((one) => one.name === name);
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
