import { isDeepStrictEqual } from "node:util";
import type { ContainerStatus, PodStatus } from "../objects.ts";

/** Waiting reasons of containers that have not been started yet. */
const expectedWaits: readonly (string | undefined)[] = ["ContainerCreating", "PodInitializing"];

/** How long a status that only says that a pod is starting, or that its newest generation was observed, may wait for the next one,
 *  milliseconds. */
const onItsWayMs = 1_000;
const seenMs = 5_000;

/** How long a status may wait to be merged with the next one, milliseconds. Errors and state changes of containers must not wait. @param
 *  before the previous pending status. */
export function mayWaitMs(before: PodStatus | undefined, next: PodStatus): number {
  const containers = [...(next.initContainerStatuses ?? []), ...(next.containerStatuses ?? [])];
  if (next.phase === "Pending" && containers.length > 0 && containers.every(isUntried)) return onItsWayMs;
  return before && isDeepStrictEqual(ofAnyGeneration(before), ofAnyGeneration(next)) ? seenMs : 0;
}

/** Ignores generations, also those of the conditions. */
function ofAnyGeneration(status: PodStatus): PodStatus {
  const conditions = status.conditions?.map((condition) => ({ ...condition, observedGeneration: 0 }));
  return { ...status, observedGeneration: 0, ...(conditions && { conditions }) };
}

function isUntried({ state, lastState, restartCount }: ContainerStatus): boolean {
  const waits = state?.waiting !== undefined && expectedWaits.includes(state.waiting.reason);
  return waits && lastState?.terminated === undefined && restartCount === 0;
}
