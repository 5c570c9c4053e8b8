import type { TopologyMeasures } from "../topology/manager.ts";
import type { CounterMetric, Metrics } from "./registry.ts";

/** Counters of containers and pods by alignment. */
export interface AlignmentCounters {
  readonly aligned: CounterMetric<"scope" | "boundary">;
  readonly unaligned: CounterMetric<"scope" | "boundary">;
}

export function alignmentCounters(metrics: Metrics): AlignmentCounters {
  const labels = ["scope", "boundary"] as const;
  return {
    aligned: metrics.counter(
      "kubelet_container_aligned_compute_resources_count",
      "Containers whose exclusive CPUs are whole cores, or share an L3 cache; containers and pods with all resources from one NUMA node.",
      labels,
    ),
    unaligned: metrics.counter(
      "kubelet_container_aligned_compute_resources_failure_count",
      "Containers that could not get whole cores; containers and pods whose resources no single NUMA node could provide.",
      labels,
    ),
  };
}

/** Upper bounds of the buckets for admission durations, milliseconds: the kubelet's. */
const durationBuckets = Array.from({ length: 15 }, (_, at) => 0.05 * 2 ** at);

/** Creates the metrics of admissions by the topology manager. */
export function topologyMetrics(metrics: Metrics, { aligned, unaligned }: AlignmentCounters): TopologyMeasures {
  const requests = metrics.counter(
    "kubelet_topology_manager_admission_requests_total",
    "Pods that requested resources from the topology manager.",
  );
  const errors = metrics.counter(
    "kubelet_topology_manager_admission_errors_total",
    "Pods whose resources could not be allocated or aligned to NUMA nodes.",
  );
  requests.add({}, 0);
  errors.add({}, 0);
  const duration = metrics.histogram(
    "kubelet_topology_manager_admission_duration_ms",
    "Duration of allocating a pod's resources, in milliseconds.",
    { buckets: durationBuckets },
  );
  const boundary = "numa_node";
  return {
    enabled() {
      for (const counter of [aligned, unaligned])
        for (const scope of ["container", "pod"] as const) counter.add({ scope, boundary }, 0);
    },
    requested: () => requests.add({}),
    failed: () => errors.add({}),
    ended: (ms) => duration.add({}, Math.trunc(ms)),
    aligned: (scope) => aligned.add({ scope, boundary }),
    unaligned: (scope) => unaligned.add({ scope, boundary }),
  };
}
