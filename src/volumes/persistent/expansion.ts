import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import { rfc3339 } from "../../lib/rfc3339.ts";
import type { ObjectReference, PersistentVolumeClaim } from "../../objects.ts";
import type { EventType } from "../../pipeline.ts";
import { quantityNumber, quantityValue } from "../../pod/quantity.ts";
import { podReference } from "../../pod/reference.ts";
import type { VolumeDeps } from "../kinds/kind.ts";
import { failed, finished, growthOf, inProgress, sizeOf } from "./claim-status.ts";
import { isRefusal } from "./expand-error.ts";
import type { Growth } from "./growths.ts";
import type { PersistentKind, Use } from "./kind.ts";

// One expansion of one volume, step for step the kubelet's.

/** A volume that a pod has, and how it grows. */
export interface Growing {
  readonly use: Use;
  readonly growth: Growth;
  readonly expand: NonNullable<PersistentKind["expand"]>;
}

/** Outcome of a try: the volume needs no more, or the cluster is not ready for it. */
interface Expanded {
  readonly done: boolean;
  /** Its size then, as a quantity. */
  readonly size: string;
}

/** Longest time for a change of a claim, which neither the pod's end nor a try's limit cuts off: the driver has done its part. */
const patchMs = 30_000;
const notRequired = "volume.kubernetes.io/node-expansion-not-required";

/** True when one size is smaller than another. Pure. */
export function isSmaller(one: string, other: string): boolean {
  return quantityNumber(one) < quantityNumber(other);
}

/** The claim as it is now. @throws CodedError in the kubelet's words. */
async function claimNow(
  { claims }: VolumeDeps,
  { metadata }: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<PersistentVolumeClaim> {
  return claims.claim(metadata.namespace, metadata.name, signal).catch((error: unknown) => {
    const message = `mountVolume.NodeExpandVolume get PVC failed : ${messageOf(error)}`;
    throw new CodedError(codeOf(error), message, { cause: error });
  });
}

/** Tells of a step of a pod's volume by events of the pod and of the claim. */
function tell(
  { events }: Pick<VolumeDeps, "events">,
  { pod, volume }: Use,
  claim: PersistentVolumeClaim,
  ...[type, reason, step, why]: readonly [type: EventType, reason: string, step: string, why: string]
): void {
  const message = `${step} for volume "${volume.metadata.name}" ${why}`;
  for (const about of [podReference(pod), claimReference(claim)]) events.event(about, type, reason, message);
}

function claimReference({ metadata }: PersistentVolumeClaim): ObjectReference {
  const { namespace, name, uid, resourceVersion } = metadata;
  const version = resourceVersion !== undefined && { resourceVersion };
  return { kind: "PersistentVolumeClaim", apiVersion: "v1", namespace, name, uid, ...version };
}

/** What is to be done for a claim that is to have a size: `again` where another node has made the volume grow, and this one has to
 *  follow. */
export type Verdict = "expand" | "again" | "done" | "wait";

/** Decides whether a node may make a claim's volume grow. Pure. @param size that the cluster has made room for. */
export function verdictOf(claim: PersistentVolumeClaim, size: string): Verdict {
  const state = growthOf(claim);
  if (state === "" && !isSmaller(sizeOf(claim), size)) {
    const isShared = claim.spec?.accessModes?.includes("ReadWriteMany") === true;
    return isShared && claim.metadata.annotations?.[notRequired] === undefined ? "again" : "done";
  }
  return state === "NodeResizePending" || state === "NodeResizeInProgress" ? "expand" : "wait";
}

/** Makes a volume grow that is being given to a pod, if it is bigger by now than its claim shows.
 *  @param read the claim as it was read with the volume. @throws CodedError in the kubelet's words. */
export async function expandWhileMounting(
  deps: VolumeDeps,
  growing: Growing,
  read: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<void> {
  const { use, growth } = growing;
  if (!isSmaller(sizeOf(read), capacityOf(use))) return;
  const claim = await claimNow(deps, read, signal);
  if (!isSmaller(sizeOf(claim), capacityOf(use))) return;
  if (use.readOnly) {
    const step = "MountVolume.NodeExpandVolume failed";
    return tell(deps, use, claim, "Warning", "FileSystemResizeFailed", step, "requested read-only file system");
  }
  const { done, size } = await expandFor(deps, growing, claim, signal);
  if (done) growth.size = size;
}

/** Makes a volume grow that is in use. @param read the claim as it was read before. @returns false when the cluster is not ready for it.
 *  @throws CodedError in the kubelet's words. */
export async function expandInUse(
  deps: VolumeDeps,
  growing: Growing,
  read: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<boolean> {
  const claim = await claimNow(deps, read, signal);
  const { done, size } = await expandFor(deps, growing, claim, signal);
  if (done) growing.growth.size = size;
  return done;
}

/** Makes a volume grow for its claim. Safe to repeat, from any step on. @param claim as it is now.
 *  @throws CodedError in the kubelet's words. */
async function expandFor(
  deps: VolumeDeps,
  growing: Growing,
  claim: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<Expanded> {
  const { allocatedResources } = claim.status ?? {};
  const isUnplanned = growthOf(claim) === "" && allocatedResources === undefined;
  return isUnplanned ? unplanned(deps, growing, claim, signal) : planned(deps, growing, claim, signal);
}

/** Growth whose steps the claim's status shows, so that it may be given up.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#recovering-from-failure-when-expanding-volumes */
async function planned(
  deps: VolumeDeps,
  { use, growth, expand }: Growing,
  claim: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<Expanded> {
  const size = claim.status?.allocatedResources?.storage ?? "0";
  const verdict = verdictOf(claim, size);
  const waiting = { done: false, size: growth.size };
  if (verdict === "done") return { done: true, size };
  if (verdict === "wait") return waiting;
  // Its user wants another size by now, and this one has failed: the control plane is to take it back.
  const givesUp = growth.hasFailed && quantityNumber(wishOf(claim)) !== quantityNumber(size);
  const isShown = verdict === "again" || growthOf(claim) === "NodeResizeInProgress";
  const shown = isShown ? claim : await patched(deps, claim, inProgress(claim));
  try {
    await expand(deps, use, bytesOf(size), signal);
  } catch (error) {
    if (verdict === "again" && isRefusal(error, "unsupported")) return { done: true, size };
    if (!isRefusal(error, "away")) {
      growth.hasFailed = true;
      await showFailure(deps, shown, error, givesUp || isRefusal(error, "infeasible"));
    }
    if (!isRefusal(error, "inUse")) throw error;
    growth.isInUse = true;
    return waiting;
  }
  tellOfSuccess(deps, use, shown);
  if (verdict === "expand") await finish(deps, shown, size, "mountVolume.NodeExpandVolume update pvc status failed: ");
  return { done: true, size };
}

/** Growth of a volume that was made bigger by hand, or by a control plane that does not tell of its steps. */
async function unplanned(
  deps: VolumeDeps,
  { use, growth, expand }: Growing,
  claim: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<Expanded> {
  const size = capacityOf(use);
  try {
    await expand(deps, use, bytesOf(size), signal);
  } catch (error) {
    if (isRefusal(error, "inUse")) growth.isInUse = true;
    if (isRefusal(error, "inUse", "unsupported")) return { done: true, size };
    throw error;
  }
  tellOfSuccess(deps, use, claim);
  if (isSmaller(sizeOf(claim), size))
    await finish(deps, claim, size, "mountVolume.NodeExpandVolume update PVC status failed : ");
  return { done: true, size };
}

/** Size of a persistent volume, as a quantity. Pure. */
export function capacityOf({ volume }: Pick<Use, "volume">): string {
  return volume.spec?.capacity?.storage ?? "0";
}

function wishOf({ spec }: PersistentVolumeClaim): string {
  return spec?.resources?.requests?.storage ?? "0";
}

function bytesOf(size: string): bigint {
  return BigInt(quantityValue(size));
}

function tellOfSuccess(deps: VolumeDeps, use: Use, claim: PersistentVolumeClaim): void {
  const step = "MountVolume.NodeExpandVolume succeeded";
  tell(deps, use, claim, "Normal", "FileSystemResizeSuccessful", step, use.pod.spec.nodeName ?? "");
  deps.log.info({ uid: use.pod.metadata.uid, volume: use.volume.metadata.name }, "a volume has grown");
}

async function finish(deps: VolumeDeps, claim: PersistentVolumeClaim, size: string, what: string): Promise<void> {
  await patched(deps, claim, finished(claim, size)).catch((error: unknown) => {
    throw new CodedError(codeOf(error), `${what}${messageOf(error)}`, { cause: error });
  });
}

async function showFailure(
  deps: VolumeDeps,
  claim: PersistentVolumeClaim,
  error: unknown,
  infeasible: boolean,
): Promise<void> {
  const patch = failed(claim, messageOf(error), infeasible, rfc3339(deps.clock.now()));
  if (!patch) return;
  await patched(deps, claim, patch).catch((err: unknown) =>
    deps.log.warn({ err, claim: claim.metadata.name }, "a claim could not be shown as one whose volume does not grow"),
  );
}

async function patched(
  { claims, clock }: VolumeDeps,
  claim: PersistentVolumeClaim,
  patch: object,
): Promise<PersistentVolumeClaim> {
  return claims.patchStatus(claim, patch, clock.within(patchMs)).catch((error: unknown) => {
    const message = `patchPVCStatus failed to patch PVC ${JSON.stringify(claim.metadata.name)}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), message, { cause: error });
  });
}
