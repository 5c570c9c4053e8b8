import type { Clock } from "../lib/clock.ts";
import type { DriverMeasures } from "../csi/client.ts";
import type { RuntimeMeasures } from "./runtime-calls.ts";
import type { PlegMeasures } from "../pleg/inspector.ts";
import type { RegistrationMeasures } from "../plugins/manager.ts";
import type { PluginMeasures } from "../runtime/images/credential-plugin.ts";
import type { PullCheckMeasures } from "../runtime/images/pull-manager.ts";
import type { PullMeasures } from "../runtime/images/puller.ts";
import type { VolumeStatsMeasures } from "../stats/driver-volume-stats.ts";
import type { VolumeMeasures } from "../volumes/measures.ts";
import type { PodStartup } from "./pod-startup.ts";
import { type Metrics, defaultBuckets } from "./registry.ts";
import { selinuxMetrics } from "./selinux.ts";

/** Creates the metrics of calls to the runtime. */
export function runtimeMetrics(metrics: Metrics): RuntimeMeasures {
  const labels = ["operation_type"] as const;
  const calls = metrics.counter("kubelet_runtime_operations_total", "Calls to the container runtime.", labels);
  const errors = metrics.counter(
    "kubelet_runtime_operations_errors_total",
    "Failed calls to the container runtime.",
    labels,
  );
  const durations = metrics.histogram(
    "kubelet_runtime_operations_duration_seconds",
    "Duration of calls to the container runtime, in seconds.",
    { labels, buckets: exponential(0.005, 2.5, 14) },
  );
  const sandboxes = metrics.histogram(
    "kubelet_run_podsandbox_duration_seconds",
    "Duration of creating sandboxes, by RuntimeClass handler, in seconds.",
    { labels: ["runtime_handler"], buckets: defaultBuckets },
  );
  const sandboxErrors = metrics.counter(
    "kubelet_run_podsandbox_errors_total",
    "Failed sandbox creations in the runtime, by RuntimeClass handler.",
    ["runtime_handler"],
  );
  return {
    called(operation, ms, failed) {
      calls.add({ operation_type: operation });
      durations.addMs({ operation_type: operation }, ms);
      if (failed) errors.add({ operation_type: operation });
    },
    sandboxRun(handler, ms, failed) {
      sandboxes.addMs({ runtime_handler: handler }, ms);
      if (failed) sandboxErrors.add({ runtime_handler: handler });
    },
  };
}

/** Returns `count` bucket bounds, each `factor` times the previous one. */
function exponential(first: number, factor: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => first * factor ** index);
}

/** Creates the metrics of the pod lifecycle event generator. */
export function plegMetrics(metrics: Metrics, clock: Clock): PlegMeasures {
  const relists = metrics.histogram("kubelet_pleg_relist_duration_seconds", "Duration of relists, in seconds.", {
    buckets: defaultBuckets,
  });
  const intervals = metrics.histogram(
    "kubelet_pleg_relist_interval_seconds",
    "Interval between relists, in seconds; 30 seconds if the runtime sends events.",
    { buckets: defaultBuckets },
  );
  const looks = metrics.histogram(
    "kubelet_pleg_pod_relist_duration_seconds",
    "Duration of querying one pod from the runtime, in seconds.",
    {
      buckets: defaultBuckets,
    },
  );
  const streams = metrics.counter(
    "kubelet_evented_pleg_connection_success_count",
    "Established event streams from the runtime.",
  );
  const breaks = metrics.counter(
    "kubelet_evented_pleg_connection_error_count",
    "Failed and broken event streams from the runtime.",
  );
  const delays = metrics.histogram(
    "kubelet_evented_pleg_connection_latency_seconds",
    "Time from a runtime event to its arrival, in seconds, including any clock difference between the two machines.",
    { buckets: defaultBuckets },
  );
  let lastSeen = 0;
  metrics.gauge(
    "kubelet_pleg_last_seen_seconds",
    "Start time of the last successful relist, in seconds since the Unix epoch.",
    {
      values: () => [[{}, lastSeen]],
    },
  );
  return {
    relistStarted(sinceLastMs) {
      if (sinceLastMs !== undefined) intervals.addMs({}, sinceLastMs);
    },
    relisted(ms) {
      relists.addMs({}, ms);
      lastSeen = Math.floor((clock.now() - ms) / 1000);
    },
    inspected: (ms) => looks.addMs({}, ms),
    eventStreamOpened: () => streams.add({}),
    eventArrived: (ms) => delays.addMs({}, ms),
    eventStreamFailed: () => breaks.add({}),
  };
}

const mebi = 1024 * 1024;
const gibi = 1024 * mebi;
/** Image size classes: lower bound in bytes (exclusive), and label. */
const imageSizes: readonly (readonly [number, string])[] = [
  [100 * gibi, "GT100GB"],
  [60 * gibi, "60GB-100GB"],
  [40 * gibi, "40GB-60GB"],
  [30 * gibi, "30GB-40GB"],
  [20 * gibi, "20GB-30GB"],
  [10 * gibi, "10GB-20GB"],
  [5 * gibi, "5GB-10GB"],
  [gibi, "1GB-5GB"],
  [500 * mebi, "500MB-1GB"],
  [100 * mebi, "100MB-500MB"],
  [10 * mebi, "10MB-100MB"],
  [0, "0-10MB"],
];

/** Creates the metrics of image pulls. */
export function pullMetrics(metrics: Metrics, startup: PodStartup): PullMeasures & PullCheckMeasures & PluginMeasures {
  const pulls = metrics.histogram(
    "kubelet_image_pull_duration_seconds",
    "Duration of successful image pulls, including the time in the queue, by image size, in seconds.",
    {
      labels: ["image_size_in_bytes"],
      buckets: [1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600],
    },
  );
  const requests = metrics.counter(
    "kubelet_image_manager_ensure_image_requests_total",
    "Image requests, by whether the image was present on the node and whether it was pulled.",
    ["pull_policy", "present_locally", "pull_required"],
  );
  const checks = metrics.counter(
    "kubelet_imagemanager_image_mustpull_checks_total",
    "Checks whether a pod may use an image that is on the node, by result.",
    ["result"],
  );
  const plugins = metrics.histogram(
    "kubelet_credential_provider_plugin_duration",
    "Duration of credential provider plugin runs, in seconds.",
    { labels: ["plugin_name"], buckets: defaultBuckets },
  );
  const pluginErrors = metrics.counter(
    "kubelet_credential_provider_plugin_errors_total",
    "Failed credential provider plugin runs.",
    ["plugin_name"],
  );
  return {
    checked: (result) => checks.add({ result }),
    pluginRan(plugin, ms, failed) {
      plugins.addMs({ plugin_name: plugin }, ms);
      if (failed) pluginErrors.add({ plugin_name: plugin });
    },
    pulling(uid) {
      const worked = startup.pulling(uid);
      return (ms, bytes) => {
        worked();
        pulls.addMs({ image_size_in_bytes: sizeLabel(Number(bytes)) }, ms);
      };
    },
    ensured: (policy, present, pulled) =>
      requests.add({
        pull_policy: policy.toLowerCase(),
        present_locally: String(present ?? "unknown"),
        pull_required: String(pulled ?? "unknown"),
      }),
  };
}

function sizeLabel(bytes: number): string {
  return imageSizes.find(([from]) => bytes > from)?.[1] ?? "N/A";
}

/** Buckets for volume operations, seconds. */
const storageBuckets = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600];

/** Creates the metrics of calls to CSI drivers. */
export function driverMetrics(metrics: Metrics): DriverMeasures & VolumeStatsMeasures {
  const calls = metrics.histogram(
    "csi_operations_seconds",
    "Duration of calls to storage drivers, by method and gRPC status, in seconds.",
    { labels: ["driver_name", "method_name", "grpc_status_code", "migrated"], buckets: storageBuckets },
  );
  const stats = metrics.histogram(
    "kubelet_volume_metric_collection_duration_seconds",
    "Duration of reading a volume's usage, by driver, or by the command that reads it, in seconds.",
    { labels: ["metric_source"], buckets: defaultBuckets },
  );
  return {
    statsRead: (source, ms) => stats.addMs({ metric_source: source }, ms),
    called: (driver, method, code, ms) =>
      calls.addMs({ driver_name: driver, method_name: method, grpc_status_code: code, migrated: "false" }, ms),
  };
}

/** Creates the metrics of plugins that register through sockets in a directory. */
export function pluginMetrics(metrics: Metrics): RegistrationMeasures {
  let [registered, desired]: (readonly string[])[] = [[], []];
  metrics.gauge("plugin_manager_total_plugins", "Plugins, found and registered, by socket.", {
    labels: ["socket_path", "state"],
    values: () => {
      const of = (sockets: readonly string[] = [], state: string) =>
        sockets.map((socket_path) => [{ socket_path, state }, 1] as const);
      return [...of(registered, "actual_state_of_world"), ...of(desired, "desired_state_of_world")];
    },
  });
  return { changed: (actual, wanted) => void ([registered, desired] = [actual, wanted]) };
}

/** Creates the metrics of mounts and unmounts. */
export function volumeMetrics(metrics: Metrics): VolumeMeasures {
  const operations = metrics.histogram(
    "storage_operation_duration_seconds",
    "Duration of mounting or expanding a volume, or of unmounting all volumes of a pod, by plugin, in seconds.",
    {
      labels: ["volume_plugin", "operation_name", "status", "migrated"],
      buckets: storageBuckets,
    },
  );
  const countedAs = (operation: string) => (plugin: string, ms: number, failed: boolean) => {
    const status = failed ? "fail-unknown" : "success";
    operations.addMs({ volume_plugin: plugin, operation_name: operation, status, migrated: "false" }, ms);
  };
  return {
    ...selinuxMetrics(metrics),
    setUp: countedAs("volume_mount"),
    mapped: countedAs("map_volume"),
    expanded: countedAs("volume_fs_resize"),
    tornDown: countedAs("volume_unmount"),
    unmapped: countedAs("unmap_volume"),
    deviceUnmapped: countedAs("unmap_device"),
  };
}
