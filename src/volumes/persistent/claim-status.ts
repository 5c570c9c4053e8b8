import type { PersistentVolumeClaim } from "../../objects.ts";

type Status = NonNullable<PersistentVolumeClaim["status"]>;
/** Condition types of a claim's resize. */
const resizeConditions = ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];
const failureCondition = "NodeResizeError";

/** Resize status of a claim, such as `NodeResizePending`; empty if none is in progress. Pure. */
export function resizeStatusOf({ status }: PersistentVolumeClaim): string {
  return status?.allocatedResourceStatuses?.storage ?? "";
}

/** Capacity in a claim's status, as a quantity. Pure. */
export function claimCapacity({ status }: PersistentVolumeClaim): string {
  return status?.capacity?.storage ?? "0";
}

/** Status patch of a claim: the node is expanding the volume. Fails if the claim was changed meanwhile. Pure. */
export function inProgressPatch(claim: PersistentVolumeClaim): object {
  return { ...ifUnchanged(claim), status: { allocatedResourceStatuses: { storage: "NodeResizeInProgress" } } };
}

/** Status patch of a claim: new capacity, resize status and conditions removed. Fails if the claim was changed meanwhile. Pure. */
export function finishedPatch(claim: PersistentVolumeClaim, size: string): object {
  const { allocatedResourceStatuses, conditions = [] } = claim.status ?? {};
  const old = conditions.filter(({ type }) => resizeConditions.includes(type));
  return {
    ...ifUnchanged(claim),
    status: {
      capacity: { storage: size },
      ...(allocatedResourceStatuses?.storage !== undefined && { allocatedResourceStatuses: { storage: null } }),
      ...(old.length > 0 && { conditions: old.map(({ type }) => ({ type, $patch: "delete" })) }),
    },
  };
}

/** Status patch of a claim: the expansion failed. An existing failure condition is kept; undefined if nothing changes. Pure.
 *  @param infeasible true if the expansion must not be retried. @param now as RFC 3339 text. */
export function failurePatch(
  claim: PersistentVolumeClaim,
  why: string,
  infeasible: boolean,
  now: string,
): object | undefined {
  const isReported = claim.status?.conditions?.some(
    ({ type, status }) => type === failureCondition && status === "True",
  );
  const condition: NonNullable<Status["conditions"]>[number] = {
    type: failureCondition,
    status: "True",
    lastTransitionTime: now,
    message: `failed to expand pvc with ${why}`,
  };
  if (isReported && !infeasible) return undefined;
  return {
    status: {
      ...(infeasible && { allocatedResourceStatuses: { storage: "NodeResizeInfeasible" } }),
      ...(!isReported && { conditions: [condition] }),
    },
  };
}

function ifUnchanged({ metadata: { resourceVersion } }: PersistentVolumeClaim) {
  return { metadata: { resourceVersion } };
}
