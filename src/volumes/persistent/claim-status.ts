import type { PersistentVolumeClaim } from "../../objects.ts";

type Status = NonNullable<PersistentVolumeClaim["status"]>;
type Condition = NonNullable<Status["conditions"]>[number];

/** Conditions that tell of a claim's growth. */
const growing = ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];
const failedType = "NodeResizeError";

/** How far the growth of a claim has come, such as `NodeResizePending`; empty when nothing is under way. Pure. */
export function growthOf({ status }: PersistentVolumeClaim): string {
  return status?.allocatedResourceStatuses?.storage ?? "";
}

/** Size that a claim shows, as a quantity. Pure. */
export function sizeOf({ status }: PersistentVolumeClaim): string {
  return status?.capacity?.storage ?? "0";
}

/** Patch of a claim's status: the node grows the volume. Fails where somebody else has changed the claim. Pure. */
export function inProgress(claim: PersistentVolumeClaim): object {
  return { ...unchanged(claim), status: { allocatedResourceStatuses: { storage: "NodeResizeInProgress" } } };
}

/** Patch of a claim's status: it has its new size, and no trace of the way there. Fails where somebody else has changed the claim. Pure. */
export function finished(claim: PersistentVolumeClaim, size: string): object {
  const { allocatedResourceStatuses, conditions = [] } = claim.status ?? {};
  const old = conditions.filter(({ type }) => growing.includes(type));
  return {
    ...unchanged(claim),
    status: {
      capacity: { storage: size },
      ...(allocatedResourceStatuses?.storage !== undefined && { allocatedResourceStatuses: { storage: null } }),
      ...(old.length > 0 && { conditions: old.map(({ type }) => ({ type, $patch: "delete" })) }),
    },
  };
}

/** Patch of a claim's status: growing failed. One that shows that already keeps its words; undefined where nothing is to change. Pure.
 *  @param infeasible true when it is not to be tried again. @param now as RFC 3339 text. */
export function failed(
  claim: PersistentVolumeClaim,
  why: string,
  infeasible: boolean,
  now: string,
): object | undefined {
  const told = claim.status?.conditions?.some(({ type, status }) => type === failedType && status === "True");
  const condition: Condition = {
    type: failedType,
    status: "True",
    lastTransitionTime: now,
    message: `failed to expand pvc with ${why}`,
  };
  if (told && !infeasible) return undefined;
  return {
    status: {
      ...(infeasible && { allocatedResourceStatuses: { storage: "NodeResizeInfeasible" } }),
      ...(!told && { conditions: [condition] }),
    },
  };
}

function unchanged({ metadata: { resourceVersion } }: PersistentVolumeClaim) {
  return { metadata: { resourceVersion } };
}
