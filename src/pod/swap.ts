import type { Container, Pod } from "../objects.ts";
import { isCritical } from "./containers.ts";
import { qosClass } from "./qos.ts";
import { quantityValue } from "./quantity.ts";

/** Bytes of the target's memory and swap, and whether a container's share of swap can be limited. */
export interface SwapTarget {
  readonly memoryBytes: number;
  readonly swapBytes: number;
  readonly cgroupV2: boolean;
  readonly swapController: boolean;
}

/** A target that can limit swap; `limitedSwap`: pods may use some at all. */
export interface PodSwapTarget extends Pick<SwapTarget, "memoryBytes" | "swapBytes"> {
  readonly limitedSwap: boolean;
}

/** Bytes of swap that all containers of a pod may use together. */
export function podSwap(pod: Pod, target: PodSwapTarget): number {
  if (!target.limitedSwap) return 0;
  const limits = { ...target, cgroupV2: true, swapController: true };
  return lastingContainers(pod).reduce((sum, container) => sum + limitedSwap(pod, container, limits), 0);
}

/** Containers that have resources of their own: ephemeral ones have none. */
function lastingContainers({ spec }: Pod): readonly Container[] {
  return [...spec.containers, ...(spec.initContainers ?? [])];
}

/** Bytes of swap that a container may use under `swapBehavior: LimitedSwap`: the share of the target's swap that its memory request is
 *  of the target's memory. None for containers that request no memory or as much as their limit, for pods that are not Burstable or that
 *  are critical, and on cgroup v1.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/#swap-limits-calculation */
export function limitedSwap(pod: Pod, container: Container, target: SwapTarget): number {
  if (!target.cgroupV2 || !target.swapController || !maySwap(pod, container)) return 0;
  const request = memoryRequest(container);
  return request > target.memoryBytes ? 0 : Math.trunc((request / target.memoryBytes) * target.swapBytes);
}

/** Whether a container may use swap, on a target that can limit it. */
function maySwap(pod: Pod, container: Container): boolean {
  if (isCritical(pod) || qosClass(pod.spec) !== "Burstable") return false;
  return memoryRequest(container) !== quantityValue(container.resources?.limits?.memory ?? "0");
}

function memoryRequest({ resources }: Container): number {
  return quantityValue(resources?.requests?.memory ?? "0");
}

/** Whether a resize would change what a running container may use of the target's swap: a kubelet does not do that in place.
 *  @param asked the pod as it is to be. @param given as it has been given its resources. */
export function resizesSwap(asked: Pod, given: Pod): boolean {
  const before = new Map(lastingContainers(given).map((container) => [container.name, container]));
  return lastingContainers(asked).some((container) => {
    const old = before.get(container.name);
    if (!old || memoryRequest(old) === memoryRequest(container)) return false;
    const policy = old.resizePolicy?.find(({ resourceName }) => resourceName === "memory");
    return policy?.restartPolicy !== "RestartContainer" && (maySwap(asked, container) || maySwap(given, old));
  });
}
