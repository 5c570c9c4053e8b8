import { isDeepStrictEqual } from "node:util";
import type { ContainerStatus, PodStatus } from "../objects.ts";

/** Waiting reasons of containers that were not started yet. */
const expectedWaits: readonly (string | undefined)[] = ["ContainerCreating", "PodInitializing"];

/** How long a status may wait for what comes next, milliseconds, where it says no more than that a pod is on its way, or that its
 *  newest spec has been seen. */
const onItsWayMs = 1_000;
const seenMs = 5_000;

/** How long a status may wait, milliseconds: what follows soon says it too. Errors, and whatever a container has come to, cannot
 *  wait. @param before what was held so far. */
export function mayWaitMs(before: PodStatus | undefined, next: PodStatus): number {
  const containers = [...(next.initContainerStatuses ?? []), ...(next.containerStatuses ?? [])];
  if (next.phase === "Pending" && containers.length > 0 && containers.every(isUntried)) return onItsWayMs;
  return before && isDeepStrictEqual(ofAnyGeneration(before), ofAnyGeneration(next)) ? seenMs : 0;
}

/** Each condition tells its generation too. */
function ofAnyGeneration(status: PodStatus): PodStatus {
  const conditions = status.conditions?.map((condition) => ({ ...condition, observedGeneration: 0 }));
  return { ...status, observedGeneration: 0, ...(conditions && { conditions }) };
}

function isUntried({ state, lastState, restartCount }: ContainerStatus): boolean {
  const waits = state?.waiting !== undefined && expectedWaits.includes(state.waiting.reason);
  return waits && lastState?.terminated === undefined && restartCount === 0;
}
