import type { Resources } from "../objects.ts";
import { type PodResources, type ResizableResource, resourcesOf, samePodResources } from "../pod/pod-resources.ts";
import { quantityNumber } from "../pod/quantity.ts";
import type { DesiredPod } from "../roles.ts";
import type { PrivateColumn } from "../state/records.ts";

export interface ResizeRequestMeasures {
  /** A resize of one container was requested. */
  requested(
    resource: "cpu" | "memory",
    requirement: "requests" | "limits",
    operation: "add" | "remove" | "increase" | "decrease",
  ): void;
}

/** Tracks and counts changes of requested resources. */
export function createRequestTracker(privateColumn: PrivateColumn, measures: ResizeRequestMeasures) {
  const last = privateColumn<PodResources>();
  return {
    /** Records the pod's requested resources. @returns true if they have changed, or are recorded for the first time. */
    record({ metadata: { uid }, spec }: DesiredPod): boolean {
      const [before, now] = [last.get(uid), resourcesOf(spec)];
      last.set(uid, now);
      if (!before) return true;
      countChanges(before, now, measures);
      return !samePodResources(before, now);
    },
  };
}

/** Counts changes of CPU and memory requests and limits, for each container. */
function countChanges(before: PodResources, after: PodResources, measures: ResizeRequestMeasures): void {
  for (const [name, now] of Object.entries(after.containers)) {
    const then: Resources = before.containers[name] ?? {};
    for (const resource of ["memory", "cpu"] as const)
      for (const requirement of ["requests", "limits"] as const) {
        const operation = operationOf(amount(then, requirement, resource), amount(now, requirement, resource));
        if (operation) measures.requested(resource, requirement, operation);
      }
  }
}

function amount(resources: Resources, requirement: "requests" | "limits", name: ResizableResource): number {
  return quantityNumber(resources[requirement]?.[name] ?? "0");
}

function operationOf(before: number, after: number) {
  if (before === after) return undefined;
  if (after === 0) return "remove";
  if (before === 0) return "add";
  return after > before ? "increase" : "decrease";
}
