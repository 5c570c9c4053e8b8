import type { DesiredPod, AllocatedPod } from "../roles.ts";
import { qosClass } from "../pod/qos.ts";
import { quantityMilli, quantityNumber } from "../pod/quantity.ts";
import { podRequests } from "../pod/resources.ts";

/** Sorts pending resizes in the order of decisions: those that request no more than their allocation first, then by priority, Guaranteed
 *  pods first, and by waiting time. (kubelet, allocation/allocation_manager.go)
 *  @param allocatedPodOf returns the allocated pod. @param deferredSince milliseconds since the epoch; undefined for a new resize. */
export function sortResizes(
  pods: readonly DesiredPod[],
  allocatedPodOf: (pod: DesiredPod) => AllocatedPod,
  deferredSince: (uid: string) => number | undefined,
): readonly DesiredPod[] {
  const ranks = new Map(pods.map((pod) => [pod, rankOf(pod, allocatedPodOf(pod), deferredSince(pod.metadata.uid))]));
  return [...pods].sort((a, b) => compare(ranks.get(a) ?? [], ranks.get(b) ?? []));
}

function rankOf(pod: DesiredPod, before: AllocatedPod, since: number | undefined): readonly number[] {
  return [
    requestsMore(pod, before) ? 1 : 0,
    -(pod.spec.priority ?? 0),
    qosClass(pod.spec) === "Guaranteed" ? 0 : 1,
    since ?? Number.MAX_SAFE_INTEGER,
  ];
}

function requestsMore(pod: DesiredPod, before: AllocatedPod): boolean {
  const [now, then] = [podRequests(pod, { overhead: false }), podRequests(before, { overhead: false })];
  return (
    quantityMilli(now["cpu"] ?? "0") > quantityMilli(then["cpu"] ?? "0") ||
    quantityNumber(now["memory"] ?? "0") > quantityNumber(then["memory"] ?? "0")
  );
}

function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : (a[at] ?? 0) - (b[at] ?? 0);
}
