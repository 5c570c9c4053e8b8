import type { DraMeasures } from "../dra/driver-client.ts";
import type { Metrics } from "./registry.ts";

/** 15 buckets from 0.1 to 40 s, each bound a constant multiple of the previous one. */
const buckets = Array.from({ length: 15 }, (_, at) => 0.1 * 400 ** (at / 14));
/** Label value for the total number of claims, of all drivers. */
const anyDriver = "<any>";

/** Creates the metrics of dynamic resource allocation. */
export function draMetrics(metrics: Metrics): DraMeasures {
  const operations = metrics.histogram(
    "dra_operations_duration_seconds",
    "Duration of preparing and releasing a pod's claims, by operation and outcome, in seconds.",
    { labels: ["operation_name", "is_error"], buckets },
  );
  const calls = metrics.histogram(
    "dra_grpc_operations_duration_seconds",
    "Duration of calls to DRA drivers, by driver, method and status code, in seconds.",
    { labels: ["driver_name", "method_name", "grpc_status_code"], buckets },
  );
  let read: () => readonly (readonly string[])[] = () => [];
  metrics.gauge("dra_resource_claims_in_use", "ResourceClaims in use on the node, by driver.", {
    labels: ["driver_name"],
    values: () => {
      const claims = read();
      const drivers = [...new Set(claims.flat())];
      const counts = drivers.map(
        (name) => [{ driver_name: name }, claims.filter((of) => of.includes(name)).length] as const,
      );
      return [[{ driver_name: anyDriver }, claims.length], ...counts];
    },
  });
  return {
    operation: (name, failed, ms) => operations.addMs({ operation_name: name, is_error: String(failed) }, ms),
    called: (driver, method, code, ms) =>
      calls.addMs({ driver_name: driver, method_name: method, grpc_status_code: code }, ms),
    claimsInUse: (reader) => void (read = reader),
  };
}
