import type { AssignmentKind, AssignmentSource } from "../resource-manager.ts";
import type { Metrics } from "./registry.ts";

/** Records CPUs or memory that containers get of their own. */
export interface AssignmentMeasures {
  failed(source: AssignmentSource): void;
  /** @param allocations number of allocations that this took. */
  assigned(kind: AssignmentKind, allocations: number): void;
}

const nothing: AssignmentMeasures = { failed() {}, assigned() {} };

/** Assignments of CPUs and of memory. @param isOn feature gate PodLevelResourceManagers: without it, a kubelet does not have these metrics. */
export function assignmentMetrics(
  metrics: Metrics,
  isOn: boolean,
): Readonly<Record<"cpu" | "memory", AssignmentMeasures>> {
  if (!isOn) return { cpu: nothing, memory: nothing };
  const allocations = metrics.counter(
    "resource_manager_allocations_total",
    "Allocations of CPUs and memory of their own to containers, from the node or from what their pod has as a whole.",
    ["resource_name", "source"],
  );
  const errors = metrics.counter("resource_manager_allocation_errors_total", "Such allocations that failed.", [
    "resource_name",
    "source",
  ]);
  const containers = metrics.counter(
    "resource_manager_container_assignments",
    "Containers by what they have: CPUs or memory of their own, or those that the containers of their pod share.",
    ["resource_name", "assignment_type"],
  );
  const of = (resource_name: "cpu" | "memory"): AssignmentMeasures => ({
    failed: (source) => errors.add({ resource_name, source }),
    assigned(assignment_type, count) {
      allocations.add({ resource_name, source: assignment_type === "node_exclusive" ? "node" : "pod" }, count);
      containers.add({ resource_name, assignment_type });
    },
  });
  return { cpu: of("cpu"), memory: of("memory") };
}
