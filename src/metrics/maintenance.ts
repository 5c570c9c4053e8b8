import type { ImplementedGate } from "../config/feature-gates.ts";
import type { CertificateMeasures } from "../certificates/issued.ts";
import type { CgroupMeasures } from "../cgroups/node-cgroups.ts";
import type { EvictionMeasures } from "../eviction/evict.ts";
import type { ImageRemovalMeasures } from "../gc/image-collection.ts";
import type { ShutdownMeasures } from "../shutdown/shutdown-record.ts";
import type { HousekeepingMeasures } from "../sync/housekeeping.ts";
import { type Metrics, defaultBuckets } from "./registry.ts";

/** Creates the metrics of the machine's last graceful shutdown: when it started and ended. */
export function shutdownMetrics(metrics: Metrics): ShutdownMeasures {
  const at = { start: 0, end: 0 };
  for (const moment of ["start", "end"] as const)
    metrics.gauge(
      `kubelet_graceful_shutdown_${moment}_time_seconds`,
      `The ${moment} time of the last graceful node shutdown, in seconds since the Unix epoch; 0 if there was none.`,
      { values: () => [[{}, Math.floor(at[moment] / 1000)]] },
    );
  return { began: (ms) => void (at.start = ms), ended: (ms) => void (at.end = ms) };
}

/** Creates the metrics of pods whose leftovers the last housekeeping cleaned up. */
export function housekeepingMetrics(metrics: Metrics): HousekeepingMeasures {
  const last = { pods: 0, failed: 0 };
  const gauge = (name: string, help: string, value: () => number) =>
    metrics.gauge(`kubelet_${name}`, help, { values: () => [[{}, value()]] });
  gauge("orphan_pod_cleaned_volumes", "Pods whose leftovers the last housekeeping removed.", () => last.pods);
  gauge(
    "orphan_pod_cleaned_volumes_errors",
    "Pods whose leftovers the last housekeeping could not remove.",
    () => last.failed,
  );
  return { cleanedUp: (pods, failed) => void Object.assign(last, { pods, failed }) };
}

/** Creates the metrics of evicted pods. */
export function evictionMetrics(metrics: Metrics): EvictionMeasures {
  const evictions = metrics.counter("kubelet_evictions", "Pods evicted by this node, by eviction signal.", [
    "eviction_signal",
  ]);
  const ages = metrics.histogram(
    "kubelet_eviction_stats_age_seconds",
    "Age of the measurements that led to an eviction, by eviction signal, in seconds.",
    { labels: ["eviction_signal"], buckets: defaultBuckets },
  );
  return {
    evicted: (signal) => evictions.add({ eviction_signal: signal }),
    observationAge: (signal, ms) => ages.addMs({ eviction_signal: signal }, ms),
  };
}

/** Creates the metrics of removed images. */
export function imageRemovalMetrics(metrics: Metrics): ImageRemovalMeasures {
  const images = metrics.counter("kubelet_image_garbage_collected_total", "Images removed by this node, by reason.", [
    "reason",
  ]);
  return { removed: (reason) => images.add({ reason }) };
}

/** Creates the metrics of cgroup operations. */
export function cgroupMetrics(metrics: Metrics): CgroupMeasures {
  const cgroups = metrics.histogram(
    "kubelet_cgroup_manager_duration_seconds",
    "Duration of cgroup operations, in seconds.",
    {
      labels: ["operation_type"],
      buckets: defaultBuckets,
    },
  );
  return {
    changed: (operation, ms) => cgroups.addMs({ operation_type: operation }, ms),
    memoryReserved: keptMemory(metrics),
    runtimeOutdated: outdatedRuntime(metrics),
  };
}

/** Creates a gauge when the runtime is found to be outdated. Its label is the Kubernetes version that drops support for the runtime.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/4033-group-driver-detection-over-cri */
function outdatedRuntime(metrics: Metrics): CgroupMeasures["runtimeOutdated"] {
  let isKnown = false;
  return () => {
    if (isKnown) return;
    isKnown = true;
    metrics.gauge(
      "kubelet_cri_losing_support",
      "First Kubernetes version whose kubelet will not support the runtime, as a label; always 1.",
      {
        labels: ["version"],
        values: () => [[{ version: "1.37.0" }, 1]],
      },
    );
  };
}

/** Creates the gauges of protected memory with their first value, which exists only with feature gate MemoryQoS. */
function keptMemory(metrics: Metrics): CgroupMeasures["memoryReserved"] {
  let bytes: { readonly min: number; readonly low: number } | undefined;
  return (min, low) => {
    const isNew = bytes === undefined;
    bytes = { min, low };
    if (!isNew) return;
    for (const [key, whose] of [
      ["min", "Guaranteed"],
      ["low", "Burstable"],
    ] as const)
      metrics.gauge(
        `kubelet_memory_qos_node_memory_${key}_bytes`,
        `Memory protected for ${whose} pods on cgroup v2 (memory.${key}), in bytes.`,
        { values: () => [[{}, bytes?.[key] ?? 0]] },
      );
  };
}

const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;
const month = 30 * day;
const year = 12 * month;

/** Creates the metrics of certificates issued by the cluster. Like the kubelet, does not report the age of client certificates. */
export function certificateMetrics(metrics: Metrics): Readonly<Record<"client" | "server", CertificateMeasures>> {
  const client = metrics.counter(
    "kubelet_certificate_manager_client_expiration_renew_errors",
    "Failures to obtain the node's client certificate.",
  );
  const server = metrics.counter(
    "kubelet_server_expiration_renew_errors",
    "Failures to obtain the kubelet API's certificate.",
  );
  const ages = metrics.histogram(
    "kubelet_certificate_manager_server_rotation_seconds",
    "Age of the kubelet API's certificates when they were replaced, in seconds.",
    { buckets: [minute, hour, 4 * hour, day, 7 * day, month, 3 * month, 6 * month, year, 4 * year] },
  );
  return {
    client: { failed: () => client.add({}), replaced: () => undefined },
    server: { failed: () => server.add({}), replaced: (ageMs) => ages.addMs({}, ageMs) },
  };
}

const stages = { alpha: "ALPHA", beta: "BETA", ga: "", deprecated: "DEPRECATED" } as const;

/** Creates the metric of the feature gates that have an effect in graftlet. */
export function gateMetrics(metrics: Metrics, gates: readonly ImplementedGate[]): void {
  metrics.gauge("kubernetes_feature_enabled", "Feature gates that have an effect on this node: 1 if enabled.", {
    labels: ["name", "stage"],
    values: () => gates.map(({ name, stage, enabled }) => [{ name, stage: stages[stage] }, Number(enabled)]),
  });
}
