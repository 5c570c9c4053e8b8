import type { Container, Pod } from "../objects.ts";
import { qosClass } from "./qos.ts";
import { quantityValue } from "./quantity.ts";

/** KubeletConfiguration settings of the feature gate MemoryQoS, which needs cgroup v2. */
export interface MemoryQos {
  /** memoryThrottlingFactor: position of memory.high between a container's request and limit, 0 to 1. */
  readonly throttlingFactor: number;
  /** memoryReservationPolicy is TieredReservation: memory requests are protected by memory.min or memory.low. */
  readonly reserves: boolean;
}

const pageBytes = 4096;

/** The memory.min, memory.low and memory.high of a container's cgroup.
 *  @param allocatableBytes the node's allocatable memory, used as the limit of a container without one.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/#memory-qos-with-cgroup-v2 */
export function containerMemoryQos(
  pod: Pod,
  { resources }: Container,
  { throttlingFactor, reserves }: MemoryQos,
  allocatableBytes: number,
): Readonly<Record<string, string>> {
  const request = quantityValue(resources?.requests?.memory ?? "0");
  const limit = quantityValue(resources?.limits?.memory ?? "0");
  const most = limit || allocatableBytes;
  const high = Math.floor((request + (most - request) * throttlingFactor) / pageBytes) * pageBytes;
  return {
    ...containerMemoryProtection(pod, request, reserves),
    ...(request !== limit && most > 0 && high > request && { "memory.high": String(high) }),
  };
}

function containerMemoryProtection(pod: Pod, request: number, reserves: boolean): Readonly<Record<string, string>> {
  if (!reserves || request === 0) return { "memory.min": "0", "memory.low": "0" };
  return { [qosClass(pod.spec) === "Guaranteed" ? "memory.min" : "memory.low"]: String(request) };
}

/** Memory protection of a pod's cgroup. @param requestBytes memory request of the whole pod. */
export function podMemoryProtection(
  pod: Pod,
  requestBytes: number,
): { readonly memoryMinBytes?: number; readonly memoryLowBytes?: number } {
  if (requestBytes === 0) return {};
  return qosClass(pod.spec) === "Guaranteed" ? { memoryMinBytes: requestBytes } : { memoryLowBytes: requestBytes };
}
