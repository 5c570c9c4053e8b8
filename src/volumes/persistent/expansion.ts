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

// Expansion of one volume, with the same steps as the kubelet.

/** A mounted volume, the state of its expansion, and how to expand it. */
export interface Growing {
  readonly use: Use;
  readonly growth: Growth;
  readonly expand: NonNullable<PersistentKind["expand"]>;
}

/** Outcome of an attempt: either nothing is left to do, or the control plane is not ready yet. */
interface Expanded {
  readonly done: boolean;
  /** The resulting size, as a quantity. */
  readonly size: string;
}

/** Timeout of a patch of the claim, independent of the pod's end and the attempt's timeout: the driver has already done its
 *  part. */
const patchMs = 30_000;
const notRequired = "volume.kubernetes.io/node-expansion-not-required";

/** True when one size is smaller than another. Pure. */
export function isSmaller(one: string, other: string): boolean {
  return quantityNumber(one) < quantityNumber(other);
}

/** Re-reads the claim. @throws CodedError in the kubelet's words. */
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

/** Emits an event for a step on both the pod and the claim. */
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

/** What to do about a claim's target size: `again` if another node has expanded a shared volume, and this node has to follow. */
export type Verdict = "expand" | "again" | "done" | "wait";

/** Decides whether this node may expand a claim's volume. Pure. @param size allocated by the control plane. */
export function verdictOf(claim: PersistentVolumeClaim, size: string): Verdict {
  const state = growthOf(claim);
  if (state === "" && !isSmaller(sizeOf(claim), size)) {
    const isShared = claim.spec?.accessModes?.includes("ReadWriteMany") === true;
    return isShared && claim.metadata.annotations?.[notRequired] === undefined ? "again" : "done";
  }
  return state === "NodeResizePending" || state === "NodeResizeInProgress" ? "expand" : "wait";
}

/** Expands a volume during mounting, if it is larger than its claim's status says.
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

/** Expands a volume that is in use.
 *  @param read the claim as it was read before. @returns false if the control plane is not ready yet. @throws CodedError in the
 *  kubelet's words. */
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

/** Expands a volume for its claim. Safe to repeat from any step.
 *  @param claim its current state. @throws CodedError in the kubelet's words. */
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

/** Expansion tracked in the claim's status (RecoverVolumeExpansionFailure), so that users can cancel it.
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
  // The user has since requested another size, and this one has failed: let the control plane take it back.
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

/** Expansion of a volume that was resized by hand, or by a control plane that does not track the steps. */
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

/** Capacity of a persistent volume, as a quantity. Pure. */
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
  deps.log.info({ uid: use.pod.metadata.uid, volume: use.volume.metadata.name }, "expanded volume");
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
    deps.log.warn({ err, claim: claim.metadata.name }, "cannot update the claim's resize status"),
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
