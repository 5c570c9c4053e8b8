import type { Pod, PodStatus } from "../objects.ts";
import type { Eviction } from "../pipeline.ts";
import { disruption, disruptionCondition } from "./conditions.ts";

/** The status of a pod that its node terminates: Failed for that reason, whatever its containers' states. */
export function evicted(pod: Pod, status: PodStatus, { reason, message, disruption: why }: Eviction): PodStatus {
  const others = (status.conditions ?? []).filter(({ type }) => type !== disruptionCondition);
  return {
    ...status,
    phase: "Failed",
    reason,
    message,
    ...(why !== undefined && { conditions: [...others, disruption(pod, why)] }),
  };
}
