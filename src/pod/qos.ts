import type { PodSpec } from "../objects.ts";
import { quantityNumber } from "./quantity.ts";

export type QosClass = "Guaranteed" | "Burstable" | "BestEffort";

/** A pod's QoS class, from pod-level CPU and memory if set, otherwise from its containers, including init containers.
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
