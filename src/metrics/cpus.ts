import type { CpuMeasures } from "../cpus/pod-allocator.ts";
import type { AssignmentMeasures } from "./assignments.ts";
import type { NodeView } from "./node-gauges.ts";
import type { Metrics } from "./registry.ts";
import type { AlignmentCounters } from "./topology.ts";

/** Exclusive CPUs. @param view undefined until the node runs. */
export function cpuMetrics(
  metrics: Metrics,
  { aligned, unaligned }: AlignmentCounters,
  assignments: AssignmentMeasures,
  view: () => NodeView | undefined,
): CpuMeasures {
  const requests = metrics.counter(
    "kubelet_cpu_manager_pinning_requests_total",
    "Requests of containers for exclusive CPUs.",
  );
  const errors = metrics.counter(
    "kubelet_cpu_manager_pinning_errors_total",
    "Requests of containers for exclusive CPUs that failed.",
  );
  requests.add({}, 0);
  errors.add({}, 0);
  const counts = () => view()?.cpus?.counts();
  metrics.gauge(
    "kubelet_cpu_manager_shared_pool_size_millicores",
    "Shared CPUs that can become exclusive, millicores.",
    {
      values: () => [[{}, 1000 * (counts()?.shared ?? 0)]],
    },
  );
  metrics.gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "Exclusive CPUs.", {
    values: () => [[{}, [...(counts()?.exclusiveByNumaNode.values() ?? [])].reduce((sum, count) => sum + count, 0)]],
  });
  metrics.gauge("kubelet_cpu_manager_allocation_per_numa", "Exclusive CPUs by NUMA node.", {
    labels: ["numa_node"],
    values: () =>
      [...(counts()?.exclusiveByNumaNode ?? [])].map(([node, count]) => [{ numa_node: String(node) }, count] as const),
  });
  return {
    enabled() {
      for (const boundary of ["physical_cpu", "uncore_cache"] as const)
        aligned.add({ scope: "container", boundary }, 0);
      unaligned.add({ scope: "container", boundary: "physical_cpu" }, 0);
    },
    requested: () => requests.add({}),
    failed(source, wholeCores) {
      errors.add({});
      assignments.failed(source);
      if (wholeCores) unaligned.add({ scope: "container", boundary: "physical_cpu" });
    },
    assigned: (kind) => assignments.assigned(kind, 1),
    wholeCores: () => aligned.add({ scope: "container", boundary: "physical_cpu" }),
    sharedCache: () => aligned.add({ scope: "container", boundary: "uncore_cache" }),
  };
}
