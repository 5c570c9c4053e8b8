import type { ResizeMeasures } from "../allocation/resizes.ts";
import type { ActuationMeasures } from "../runtime/actuate-resources.ts";
import type { Metrics } from "./registry.ts";
import type { NodeGauges } from "./node-gauges.ts";

/** Milliseconds. */
const buckets = [10, 50, 100, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000];

/** Creates the metrics of requested resizes of running pods and of their results. @param view undefined until the node runs. */
export function resizeMetrics(
  metrics: Metrics,
  view: () => NodeGauges | undefined,
): ResizeMeasures & ActuationMeasures {
  const requested = metrics.counter(
    "kubelet_container_requested_resizes_total",
    "Requested resizes, counted per resource and container.",
    ["resource", "requirement", "operation"],
  );
  const refused = metrics.counter("kubelet_pod_infeasible_resizes_total", "Resizes that cannot be done in place.", [
    "reason_detail",
  ]);
  const accepted = metrics.counter(
    "kubelet_pod_deferred_accepted_resizes_total",
    "Deferred resizes that were accepted, by the trigger of the retry.",
    ["retry_trigger"],
  );
  const durations = metrics.histogram(
    "kubelet_pod_resize_duration_milliseconds",
    "Duration of applying allocated resources to pods, in milliseconds.",
    { labels: ["success"], buckets },
  );
  metrics.gauge("kubelet_pod_pending_resizes", "Pods with a pending resize, by reason.", {
    labels: ["reason"],
    values: () => {
      const { deferred = 0, infeasible = 0 } = view()?.resizes() ?? {};
      const counts = [[{ reason: "deferred" }, deferred] as const, [{ reason: "infeasible" }, infeasible] as const];
      return counts.filter(([, count]) => count > 0);
    },
  });
  metrics.gauge("kubelet_pod_in_progress_resizes", "Pods with a resize in progress.", {
    values: () => [[{}, view()?.resizes().inProgress ?? 0]],
  });
  return {
    requested: (resource, requirement, operation) => requested.add({ resource, requirement, operation }),
    infeasible: (detail) => refused.add({ reason_detail: detail }),
    accepted: (trigger) => accepted.add({ retry_trigger: trigger }),
    actuated: (ms, success) => durations.add({ success: String(success) }, ms),
  };
}
