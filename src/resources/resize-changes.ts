import type { ResizeMeasures } from "../measures.ts";
import type { Pod, Resources } from "../objects.ts";
import { type PodResources, type ResizableResource, resourcesOf } from "../pod/resize.ts";
import { quantityNumber } from "../pod/quantity.ts";

/** Counts what pods ask for anew. */
export function createWishes(measures: Pick<ResizeMeasures, "asked">) {
  const last = new Map<string, PodResources>();
  return {
    /** @param pod as it has been given its resources. */
    begin: ({ metadata, spec }: Pod): void => void last.set(metadata.uid, resourcesOf(spec)),
    hear({ metadata: { uid }, spec }: Pod): void {
      const [before, now] = [last.get(uid), resourcesOf(spec)];
      if (before) countChanges(before, now, measures);
      last.set(uid, now);
    },
    forget: (uid: string): void => void last.delete(uid),
  };
}

/** Tells what of CPU and memory was asked for otherwise than before, for each container. */
function countChanges(before: PodResources, after: PodResources, measures: Pick<ResizeMeasures, "asked">): void {
  for (const [name, now] of Object.entries(after.containers)) {
    const then: Resources = before.containers[name] ?? {};
    for (const resource of ["memory", "cpu"] as const)
      for (const requirement of ["requests", "limits"] as const) {
        const operation = operationOf(amount(then, requirement, resource), amount(now, requirement, resource));
        if (operation) measures.asked(resource, requirement, operation);
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
