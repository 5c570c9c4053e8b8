import type { Container, Pod } from "../objects.ts";
import { qosClass } from "./qos.ts";
import { quantityValue } from "./quantity.ts";

/** Settings of feature gate MemoryQoS, which is for cgroup v2, in the KubeletConfiguration. */
export interface MemoryQos {
  /** memoryThrottlingFactor: where between its request and its limit a container is slowed down, 0 to 1. */
  readonly throttlingFactor: number;
  /** memoryReservationPolicy is TieredReservation: what is requested is kept for its pod. */
  readonly reserves: boolean;
}

/** Bytes that are kept for a cgroup: from anybody, or as long as others have some to spare. */
export interface KeptMemory {
  readonly memoryMinBytes?: number;
  readonly memoryLowBytes?: number;
}

const pageBytes = 4096;

/** Settings of a container's own cgroup: what is kept for it, and from where on it is slowed down.
 *  @param allocatableBytes memory of the node's pods together, the limit of a container that has none.
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
    ...kept(pod, request, reserves),
    ...(request !== limit && most > 0 && high > request && { "memory.high": String(high) }),
  };
}

function kept(pod: Pod, request: number, reserves: boolean): Readonly<Record<string, string>> {
  if (!reserves || request === 0) return { "memory.min": "0", "memory.low": "0" };
  return { [qosClass(pod.spec) === "Guaranteed" ? "memory.min" : "memory.low"]: String(request) };
}

/** Memory that is kept for a pod's cgroup. @param requestBytes of the whole pod. */
export function podKeptMemory(pod: Pod, requestBytes: number): KeptMemory {
  if (requestBytes === 0) return {};
  return qosClass(pod.spec) === "Guaranteed" ? { memoryMinBytes: requestBytes } : { memoryLowBytes: requestBytes };
}
