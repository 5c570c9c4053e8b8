import type { Pod } from "../objects.ts";
import type { ProbeMeasures } from "../probes/probes.ts";
import { type Metrics, defaultBuckets } from "./registry.ts";

const results = { Success: "successful", Failure: "failed" } as const;
const kinds = { liveness: "Liveness", readiness: "Readiness", startup: "Startup" } as const;

/** Creates the metrics of probes. A series exists while its pod is probed. */
export function probeMetrics(metrics: Metrics): ProbeMeasures {
  const ofDuration = ["probe_type", "container", "pod", "namespace"] as const;
  const total = metrics.counter("prober_probe_total", "Probes of a container, by result.", [
    ...ofDuration,
    "result",
    "pod_uid",
  ]);
  const durations = metrics.histogram("prober_probe_duration_seconds", "Duration of successful probes, in seconds.", {
    labels: ofDuration,
    buckets: defaultBuckets,
  });
  return {
    probed(pod, container, kind, result, ms) {
      const labels = { ...labelsOf(pod), probe_type: kinds[kind], container };
      total.add({ ...labels, pod_uid: pod.metadata.uid, result: results[result] });
      if (result === "Success") durations.addMs(labels, ms);
    },
    forget(pod) {
      for (const { name } of [...pod.spec.containers, ...(pod.spec.initContainers ?? [])]) {
        for (const kind of Object.values(kinds)) {
          const labels = { ...labelsOf(pod), probe_type: kind, container: name };
          for (const result of Object.values(results)) total.remove({ ...labels, pod_uid: pod.metadata.uid, result });
          durations.remove(labels);
        }
      }
    },
  };
}

function labelsOf({ metadata: { name, namespace } }: Pod) {
  return { pod: name, namespace };
}
