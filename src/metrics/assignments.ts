import type { AssignmentKind, AssignmentSource } from "../resource-manager.ts";
import type { Metrics } from "./registry.ts";
import type { CpuMeasures } from "../cpus/pod-allocator.ts";
import type { NodeGauges } from "./node-gauges.ts";
import type { AlignmentCounters } from "./topology.ts";
import type { MemoryMeasures } from "../memory-manager/pod-allocator.ts";

/** Records CPUs or memory assigned to containers of pinned pods. */
export interface AssignmentMeasures {
  failed(source: AssignmentSource): void;
  /** CPUs or memory were assigned to a container. @param allocations number of allocations behind the assignment: for memory, one for
   *  each type. */
  assigned(kind: AssignmentKind, allocations: number): void;
}

const nothing: AssignmentMeasures = { failed() {}, assigned() {} };

/** Creates the metrics of CPU and memory assignments. @param isOn feature gate PodLevelResourceManagers: without it, a kubelet does
 *  not have these metrics. */
export function assignmentMetrics(
  metrics: Metrics,
  isOn: boolean,
): Readonly<Record<"cpu" | "memory", AssignmentMeasures>> {
  if (!isOn) return { cpu: nothing, memory: nothing };
  const allocations = metrics.counter(
    "resource_manager_allocations_total",
    "CPU and memory allocations to containers, by source: the node, or the resources of the whole pod.",
    ["resource_name", "source"],
  );
  const errors = metrics.counter(
    "resource_manager_allocation_errors_total",
    "Failed CPU and memory allocations to containers, by source.",
    ["resource_name", "source"],
  );
  const containers = metrics.counter(
    "resource_manager_container_assignments",
    "Containers, by kind of assignment: exclusive CPUs or memory, or CPUs or memory shared with other containers of the pod.",
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

/** Creates the metrics of exclusive CPUs. @param view undefined until the node runs. */
export function cpuMetrics(
  metrics: Metrics,
  { aligned, unaligned }: AlignmentCounters,
  assignments: AssignmentMeasures,
  view: () => NodeGauges | undefined,
): CpuMeasures {
  const requests = metrics.counter(
    "kubelet_cpu_manager_pinning_requests_total",
    "Container requests for exclusive CPUs.",
  );
  const errors = metrics.counter(
    "kubelet_cpu_manager_pinning_errors_total",
    "Failed container requests for exclusive CPUs.",
  );
  requests.add({}, 0);
  errors.add({}, 0);
  const counts = () => view()?.cpus?.counts();
  metrics.gauge(
    "kubelet_cpu_manager_shared_pool_size_millicores",
    "Shared CPUs that can become exclusive, in millicores.",
    {
      values: () => [[{}, 1000 * (counts()?.shared ?? 0)]],
    },
  );
  metrics.gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "Exclusive CPUs.", {
    values: () => [[{}, [...(counts()?.exclusiveByNumaNode.values() ?? [])].reduce((sum, count) => sum + count, 0)]],
  });
  metrics.gauge("kubelet_cpu_manager_allocation_per_numa", "Exclusive CPUs, by NUMA node.", {
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

/** Creates the metrics of memory on NUMA nodes. */
export function memoryMetrics(metrics: Metrics, assignments: AssignmentMeasures): MemoryMeasures {
  const requests = metrics.counter(
    "kubelet_memory_manager_pinning_requests_total",
    "Container requests for memory on NUMA nodes.",
  );
  const errors = metrics.counter(
    "kubelet_memory_manager_pinning_errors_total",
    "Failed container requests for memory on NUMA nodes.",
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
