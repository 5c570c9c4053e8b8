import type { Pod, PodStatus } from "../objects.ts";
import type { Eviction } from "../pipeline.ts";
import { disruption, disruptionCondition } from "./conditions.ts";

/** The status of a pod that its node terminates: Failed for that reason. One that makes room and whose containers all end well when they
 *  are stopped has succeeded, as with a kubelet; a deadline that is over fails a pod whatever its containers say. */
export function evicted(pod: Pod, status: PodStatus, { reason, message, disruption: why }: Eviction): PodStatus {
  if (why === undefined) return { ...status, phase: "Failed", reason, message };
  const others = (status.conditions ?? []).filter(({ type }) => type !== disruptionCondition);
  return {
    ...status,
    ...(status.phase !== "Succeeded" && { phase: "Failed", reason, message }),
    conditions: [...others, disruption(pod, why)],
  };
}
