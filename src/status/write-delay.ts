import { isDeepStrictEqual } from "node:util";
import type { ContainerStatus, PodStatus } from "../objects.ts";

/** Waiting reasons of containers that have not been started yet. */
const startingReasons: readonly (string | undefined)[] = ["ContainerCreating", "PodInitializing"];

/** How long a status that only says that a pod is starting, or that its newest generation was observed, may wait for the next one,
 *  milliseconds. */
const startingDelayMs = 1_000;
const generationDelayMs = 5_000;

/** How long a status may wait to be merged with the next one, milliseconds. Errors and state changes of containers must not wait. @param
 *  before the previous pending status. */
export function writeDelayMs(before: PodStatus | undefined, next: PodStatus): number {
  const containers = [...(next.initContainerStatuses ?? []), ...(next.containerStatuses ?? [])];
  if (next.phase === "Pending" && containers.length > 0 && containers.every(isStarting)) return startingDelayMs;
  return before && isDeepStrictEqual(withoutGenerations(before), withoutGenerations(next)) ? generationDelayMs : 0;
}

/** Ignores generations, also those of the conditions. */
function withoutGenerations(status: PodStatus): PodStatus {
  const conditions = status.conditions?.map((condition) => ({ ...condition, observedGeneration: 0 }));
  return { ...status, observedGeneration: 0, ...(conditions && { conditions }) };
}

function isStarting({ state, lastState, restartCount }: ContainerStatus): boolean {
  const waits = state?.waiting !== undefined && startingReasons.includes(state.waiting.reason);
  return waits && lastState?.terminated === undefined && restartCount === 0;
}
