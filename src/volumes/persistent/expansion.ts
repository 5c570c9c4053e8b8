import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import { rfc3339 } from "../../lib/rfc3339.ts";
import type { ObjectReference, PersistentVolumeClaim } from "../../objects.ts";
import type { EventType } from "../../pipeline.ts";
import { quantityNumber, quantityValue } from "../../pod/quantity.ts";
import { podReference } from "../../pod/reference.ts";
import type { VolumeDeps } from "../plugins/plugin.ts";
import { failurePatch, finishedPatch, resizeStatusOf, inProgressPatch, claimCapacity } from "./claim-status.ts";
import type { ExpansionState } from "./expansion-states.ts";
import type { PersistentVolumePlugin, VolumeUse } from "./plugin.ts";
import { hasRefusal } from "./csi-expand.ts";

// Expansion of one volume, with the same steps as the kubelet.

/** A mounted volume, the state of its expansion, and how to expand it. */
export interface Expansion {
  readonly use: VolumeUse;
  readonly state: ExpansionState;
  readonly expand: NonNullable<PersistentVolumePlugin["expand"]>;
}

/** Outcome of an attempt: either nothing is left to do, or the control plane is not ready yet. */
interface ExpansionOutcome {
  readonly done: boolean;
  /** The resulting size, as a quantity. */
  readonly size: string;
}

/** Timeout of a patch of the claim, independent of the pod's end and the attempt's timeout: the driver has already done its
 *  part. */
const patchTimeoutMs = 30_000;
const notRequired = "volume.kubernetes.io/node-expansion-not-required";

/** True when one size is smaller than another. Pure. */
export function isSmaller(one: string, other: string): boolean {
  return quantityNumber(one) < quantityNumber(other);
}

/** Re-reads the claim. @throws CodedError in the kubelet's words. */
async function rereadClaim(
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
function emitEvents(
  { events }: Pick<VolumeDeps, "events">,
  { pod, volume }: VolumeUse,
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
export type ExpansionDecision = "expand" | "again" | "done" | "wait";

/** Decides whether this node may expand a claim's volume. Pure. @param size allocated by the control plane. */
export function decideExpansion(claim: PersistentVolumeClaim, size: string): ExpansionDecision {
  const state = resizeStatusOf(claim);
  if (state === "" && !isSmaller(claimCapacity(claim), size)) {
    const isShared = claim.spec?.accessModes?.includes("ReadWriteMany") === true;
    return isShared && claim.metadata.annotations?.[notRequired] === undefined ? "again" : "done";
  }
  return state === "NodeResizePending" || state === "NodeResizeInProgress" ? "expand" : "wait";
}

/** Expands a volume during mounting, if it is larger than its claim's status says.
 *  @param read the claim as it was read with the volume. @throws CodedError in the kubelet's words. */
export async function expandWhileMounting(
  deps: VolumeDeps,
  expansion: Expansion,
  read: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<void> {
  const { use, state } = expansion;
  if (!isSmaller(claimCapacity(read), volumeCapacity(use))) return;
  const claim = await rereadClaim(deps, read, signal);
  if (!isSmaller(claimCapacity(claim), volumeCapacity(use))) return;
  if (use.readOnly) {
    const step = "MountVolume.NodeExpandVolume failed";
    return emitEvents(deps, use, claim, "Warning", "FileSystemResizeFailed", step, "requested read-only file system");
  }
  const { done, size } = await expandFor(deps, expansion, claim, signal);
  if (done) state.size = size;
}

/** Expands a volume that is in use.
 *  @param read the claim as it was read before. @returns false if the control plane is not ready yet. @throws CodedError in the
 *  kubelet's words. */
export async function expandInUse(
  deps: VolumeDeps,
  expansion: Expansion,
  read: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<boolean> {
  const claim = await rereadClaim(deps, read, signal);
  const { done, size } = await expandFor(deps, expansion, claim, signal);
  if (done) expansion.state.size = size;
  return done;
}

/** Expands a volume for its claim. Safe to repeat from any step.
 *  @param claim its current state. @throws CodedError in the kubelet's words. */
async function expandFor(
  deps: VolumeDeps,
  expansion: Expansion,
  claim: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<ExpansionOutcome> {
  const { allocatedResources } = claim.status ?? {};
  const isUntracked = resizeStatusOf(claim) === "" && allocatedResources === undefined;
  return isUntracked ? expandUntracked(deps, expansion, claim, signal) : expandTracked(deps, expansion, claim, signal);
}

/** Expansion tracked in the claim's status (RecoverVolumeExpansionFailure), so that users can cancel it.
 *  @see https://kubernetes.io/docs/concepts/storage/persistent-volumes/#recovering-from-failure-when-expanding-volumes */
async function expandTracked(
  deps: VolumeDeps,
  { use, state, expand }: Expansion,
  claim: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<ExpansionOutcome> {
  const size = claim.status?.allocatedResources?.storage ?? "0";
  const decision = decideExpansion(claim, size);
  const waiting = { done: false, size: state.size };
  if (decision === "done") return { done: true, size };
  if (decision === "wait") return waiting;
  // The user has since requested another size, and this one has failed: let the control plane withdraw it.
  const givesUp = state.hasFailed && quantityNumber(requestedSize(claim)) !== quantityNumber(size);
  const isMarked = decision === "again" || resizeStatusOf(claim) === "NodeResizeInProgress";
  const marked = isMarked ? claim : await patchClaim(deps, claim, inProgressPatch(claim));
  try {
    await expand(deps, use, bytesOf(size), signal);
  } catch (error) {
    if (decision === "again" && hasRefusal(error, "unsupported")) return { done: true, size };
    if (!hasRefusal(error, "away")) {
      state.hasFailed = true;
      await reportFailure(deps, marked, error, givesUp || hasRefusal(error, "infeasible"));
    }
    if (!hasRefusal(error, "inUse")) throw error;
    state.isInUse = true;
    return waiting;
  }
  reportSuccess(deps, use, marked);
  if (decision === "expand")
    await finishExpansion(deps, marked, size, "mountVolume.NodeExpandVolume update pvc status failed: ");
  return { done: true, size };
}

/** Expansion of a volume that was resized by hand, or by a control plane that does not track the steps. */
async function expandUntracked(
  deps: VolumeDeps,
  { use, state, expand }: Expansion,
  claim: PersistentVolumeClaim,
  signal: AbortSignal,
): Promise<ExpansionOutcome> {
  const size = volumeCapacity(use);
  try {
    await expand(deps, use, bytesOf(size), signal);
  } catch (error) {
    if (hasRefusal(error, "inUse")) state.isInUse = true;
    if (hasRefusal(error, "inUse", "unsupported")) return { done: true, size };
    throw error;
  }
  reportSuccess(deps, use, claim);
  if (isSmaller(claimCapacity(claim), size))
    await finishExpansion(deps, claim, size, "mountVolume.NodeExpandVolume update PVC status failed : ");
  return { done: true, size };
}

/** Capacity of a persistent volume, as a quantity. Pure. */
export function volumeCapacity({ volume }: Pick<VolumeUse, "volume">): string {
  return volume.spec?.capacity?.storage ?? "0";
}

function requestedSize({ spec }: PersistentVolumeClaim): string {
  return spec?.resources?.requests?.storage ?? "0";
}

function bytesOf(size: string): bigint {
  return BigInt(quantityValue(size));
}

function reportSuccess(deps: VolumeDeps, use: VolumeUse, claim: PersistentVolumeClaim): void {
  const step = "MountVolume.NodeExpandVolume succeeded";
  emitEvents(deps, use, claim, "Normal", "FileSystemResizeSuccessful", step, use.pod.spec.nodeName ?? "");
  deps.log.info({ uid: use.pod.metadata.uid, volume: use.volume.metadata.name }, "expanded volume");
}

async function finishExpansion(
  deps: VolumeDeps,
  claim: PersistentVolumeClaim,
  size: string,
  what: string,
): Promise<void> {
  await patchClaim(deps, claim, finishedPatch(claim, size)).catch((error: unknown) => {
    throw new CodedError(codeOf(error), `${what}${messageOf(error)}`, { cause: error });
  });
}

async function reportFailure(
  deps: VolumeDeps,
  claim: PersistentVolumeClaim,
  error: unknown,
  infeasible: boolean,
): Promise<void> {
  const patch = failurePatch(claim, messageOf(error), infeasible, rfc3339(deps.clock.now()));
  if (!patch) return;
  await patchClaim(deps, claim, patch).catch((err: unknown) =>
    deps.log.warn({ err, claim: claim.metadata.name }, "cannot update the claim's resize status"),
  );
}

async function patchClaim(
  { claims, clock }: VolumeDeps,
  claim: PersistentVolumeClaim,
  patch: object,
): Promise<PersistentVolumeClaim> {
  return claims.patchStatus(claim, patch, clock.within(patchTimeoutMs)).catch((error: unknown) => {
    const message = `patchPVCStatus failed to patch PVC ${JSON.stringify(claim.metadata.name)}: ${messageOf(error)}`;
    throw new CodedError(codeOf(error), message, { cause: error });
  });
}
