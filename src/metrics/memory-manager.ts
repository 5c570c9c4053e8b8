import type { MemoryMeasures } from "../memory-manager/pod-allocator.ts";
import type { AssignmentMeasures } from "./assignments.ts";
import type { Metrics } from "./registry.ts";

/** Memory on NUMA nodes. */
export function memoryMetrics(metrics: Metrics, assignments: AssignmentMeasures): MemoryMeasures {
  const requests = metrics.counter(
    "kubelet_memory_manager_pinning_requests_total",
    "Requests of containers for memory on NUMA nodes.",
  );
  const errors = metrics.counter(
    "kubelet_memory_manager_pinning_errors_total",
    "Requests of containers for memory on NUMA nodes that failed.",
  );
  requests.add({}, 0);
  errors.add({}, 0);
  return {
    requested: () => requests.add({}),
    failed(source) {
      errors.add({});
      assignments.failed(source);
    },
    assigned: assignments.assigned,
  };
}
