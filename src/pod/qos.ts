import type { PodSpec } from "../objects.ts";
import { quantityNumber } from "./quantity.ts";

export type QosClass = "Guaranteed" | "Burstable" | "BestEffort";

/** A pod's quality of service class, from its own cpu and memory, else from those of its containers, init containers included.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/ */
export function qosClass(spec: PodSpec): QosClass {
  const containers = spec.resources ? [spec] : [...spec.containers, ...(spec.initContainers ?? [])];
  const amounts = containers.map(({ resources }) =>
    (["cpu", "memory"] as const).map((name) => {
      const limit = quantityNumber(resources?.limits?.[name] ?? "0");
      return { request: quantityNumber(resources?.requests?.[name] ?? String(limit)), limit };
    }),
  );
  if (amounts.flat().every(({ request, limit }) => request === 0 && limit === 0)) return "BestEffort";
  const guaranteed = amounts.flat().every(({ request, limit }) => limit > 0 && request === limit);
  return guaranteed ? "Guaranteed" : "Burstable";
}
