import type { HealthMeasures } from "../server/ports.ts";
import type { Metrics } from "./registry.ts";

/** Creates the metrics of health checks; each check has a series after its first result.
 *  @see https://kubernetes.io/docs/reference/instrumentation/slis/ */
export function healthMetrics(metrics: Metrics): HealthMeasures & { reset(): void } {
  /** Result of the last check by name; true for success. */
  const newest = new Map<string, boolean>();
  metrics.gauge("kubernetes_healthcheck", "Result of a health check: 1 if healthy.", {
    labels: ["name", "type"],
    values: () => [...newest].map(([name, isHealthy]) => [{ name, type: "healthz" }, isHealthy ? 1 : 0]),
  });
  const total = metrics.counter("kubernetes_healthchecks_total", "Health checks, by result.", [
    "name",
    "status",
    "type",
  ]);
  const labelsOf = (name: string, isHealthy: boolean) => ({
    name,
    status: isHealthy ? "success" : "error",
    type: "healthz",
  });
  return {
    checked(name, isHealthy) {
      newest.set(name, isHealthy);
      total.add(labelsOf(name, isHealthy));
    },
    reset() {
      for (const name of newest.keys()) for (const is of [true, false]) total.remove(labelsOf(name, is));
      newest.clear();
    },
  };
}
