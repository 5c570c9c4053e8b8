import type { Pod, PodStatus } from "../objects.ts";
import type { Eviction } from "../pipeline.ts";
import { disruption, disruptionCondition } from "./conditions.ts";

/** The status of a pod that its node terminates: Failed with the given reason. As in the kubelet, a preempted or evicted pod whose
 *  containers all exit successfully has Succeeded; a pod past its active deadline fails whatever its containers' exit codes. */
export function evictedStatus(pod: Pod, status: PodStatus, { reason, message, disruption: why }: Eviction): PodStatus {
  if (why === undefined) return { ...status, phase: "Failed", reason, message };
  const others = (status.conditions ?? []).filter(({ type }) => type !== disruptionCondition);
  return {
    ...status,
    ...(status.phase !== "Succeeded" && { phase: "Failed", reason, message }),
    conditions: [...others, disruption(pod, why)],
  };
}
