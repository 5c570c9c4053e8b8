import type { DeviceMeasures } from "../devices/allocate.ts";
import type { PodResourcesMeasures } from "../devices/pod-resources-server.ts";
import type { PodsApiMeasures } from "../pods-api/server.ts";
import { type Metrics, defaultBuckets } from "./registry.ts";

/** Creates the metrics of device plugins. */
export function deviceMetrics(metrics: Metrics): DeviceMeasures {
  const labels = ["resource_name"] as const;
  const registrations = metrics.counter(
    "kubelet_device_plugin_registration_total",
    "Registrations of device plugins, including rejected ones, by resource.",
    labels,
  );
  const durations = metrics.histogram(
    "kubelet_device_plugin_alloc_duration_seconds",
    "Duration of device plugin allocations, by resource, in seconds.",
    { labels, buckets: defaultBuckets },
  );
  return {
    registering: (resource) => registrations.add({ resource_name: resource }),
    allocated: (resource, ms) => durations.addMs({ resource_name: resource }, ms),
  };
}

/** Creates the metrics of calls of the pod-resources API. */
export function podResourcesMetrics(metrics: Metrics): PodResourcesMeasures {
  const name = "kubelet_pod_resources_endpoint";
  const counter = (what: string, help: string) => metrics.counter(`${name}_${what}`, help, ["server_api_version"]);
  const all = counter("requests_total", "Requests to the pod resources API, by version.");
  const requests = {
    list: counter("requests_list", "Requests for a list of pods, by version."),
    get: counter("requests_get", "Requests for one pod, by version."),
    get_allocatable: counter("requests_get_allocatable", "Requests for allocatable resources, by version."),
  };
  const errors = {
    list: counter("errors_list", "Failed requests for a list of pods, by version."),
    get: counter("errors_get", "Failed requests for one pod, by version."),
    get_allocatable: counter("errors_get_allocatable", "Failed requests for allocatable resources, by version."),
  };
  return {
    requested(version, method) {
      all.add({ server_api_version: version });
      // As in the kubelet, calls of v1alpha1 are counted only in the total: it has a single method.
      if (version === "v1") requests[method].add({ server_api_version: version });
    },
    failed: (version, method) => errors[method].add({ server_api_version: version }),
  };
}

/** Creates the metrics of watches of the Pods API. */
export function podsApiMetrics(metrics: Metrics): PodsApiMeasures {
  const dropped = metrics.counter(
    "kubelet_pod_watch_events_dropped_total",
    "Events that clients of the Pods API did not read in time; their watches are then closed.",
  );
  return { dropped: () => dropped.add({}) };
}
