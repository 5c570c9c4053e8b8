import type { Node } from "../../objects.ts";
import { VolumePendingError } from "../failure.ts";
import type { SetUpDeps } from "../plugins/plugin.ts";

/** Poll interval of the watched Node object, milliseconds: the kubelet's. */
const pollIntervalMs = 100;

/** A volume that a pod is going to use. */
interface AwaitedVolume {
  /** Identity on the node. */
  readonly id: string;
  /** UID of the pod. */
  readonly uid: string;
  /** The cluster's name of the volume. */
  readonly name: string;
}

/** Announces a volume in the Node's volumesInUse, which prevents a detach, and waits until the Node lists it as attached.
 *  @param isNotNeeded asked after each poll, with the number of polls; true ends the wait.
 *  @returns false if the wait ended that way. @throws VolumePendingError if the signal aborts first. */
export async function waitUntilAttachedInNode(
  deps: Pick<SetUpDeps, "volumeStates" | "node" | "clock">,
  { id, uid, name }: AwaitedVolume,
  signal: AbortSignal,
  isNotNeeded: (polls: number) => Promise<boolean> = async () => false,
): Promise<boolean> {
  deps.volumeStates.markInUse(id, uid, name);
  for (let polls = 1; !isAttachedAndInUse(deps.node(), name); polls += 1) {
    await deps.clock.sleep(pollIntervalMs, signal).catch(() => {
      throw new VolumePendingError(`volume ${name} is not yet in node's status`);
    });
    if (await isNotNeeded(polls)) return false;
  }
  return true;
}

/** True if the Node lists the volume in both volumesInUse and volumesAttached. */
function isAttachedAndInUse(node: Node | undefined, name: string): boolean {
  const { volumesInUse = [], volumesAttached = [] } = node?.status ?? {};
  return volumesInUse.includes(name) && volumesAttached.some((one) => one.name === name);
}
