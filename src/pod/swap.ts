import type { Container, Pod } from "../objects.ts";
import { isCritical } from "./containers.ts";
import { qosClass } from "./qos.ts";
import { quantityValue } from "./quantity.ts";

/** The target's memory and swap in bytes, and its support for swap limits. */
export interface SwapTarget {
  readonly memoryBytes: number;
  readonly swapBytes: number;
  readonly cgroupV2: boolean;
  /** Memory plus swap can be limited. */
  readonly swapController: boolean;
}

/** A target that can limit swap. `limitedSwap`: pods may use swap at all. */
export interface PodSwapTarget extends Pick<SwapTarget, "memoryBytes" | "swapBytes"> {
  readonly limitedSwap: boolean;
}

/** Swap limit of a pod, bytes: the sum of its containers' limits. */
export function podSwap(pod: Pod, target: PodSwapTarget): number {
  if (!target.limitedSwap) return 0;
  const limits = { ...target, cgroupV2: true, swapController: true };
  return resizableContainers(pod).reduce((sum, container) => sum + swapLimit(pod, container, limits), 0);
}

/** Containers with resources; ephemeral containers have none. */
function resizableContainers({ spec }: Pod): readonly Container[] {
  return [...spec.containers, ...(spec.initContainers ?? [])];
}

/** A container's swap limit under `swapBehavior: LimitedSwap`, bytes: the target's swap times the ratio of the memory request to the
 *  target's memory. 0 for containers with no memory request or one equal to the limit, for pods that are critical or not Burstable, and
 *  on cgroup v1.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/#swap-limits-calculation */
export function swapLimit(pod: Pod, container: Container, target: SwapTarget): number {
  if (!target.cgroupV2 || !target.swapController || !maySwap(pod, container)) return 0;
  const request = memoryRequest(container);
  return request > target.memoryBytes ? 0 : Math.trunc((request / target.memoryBytes) * target.swapBytes);
}

/** True if a container may use swap, given a target that can limit it. */
function maySwap(pod: Pod, container: Container): boolean {
  if (isCritical(pod) || qosClass(pod.spec) !== "Burstable") return false;
  return memoryRequest(container) !== quantityValue(container.resources?.limits?.memory ?? "0");
}

function memoryRequest({ resources }: Container): number {
  return quantityValue(resources?.requests?.memory ?? "0");
}

/** True if a resize would change a running container's swap limit, which the kubelet does not do in place.
 *  @param desired the desired pod. @param allocated the allocated pod. */
export function changesSwapLimit(desired: Pod, allocated: Pod): boolean {
  const before = new Map(resizableContainers(allocated).map((container) => [container.name, container]));
  return resizableContainers(desired).some((container) => {
    const old = before.get(container.name);
    if (!old || memoryRequest(old) === memoryRequest(container)) return false;
    const policy = old.resizePolicy?.find(({ resourceName }) => resourceName === "memory");
    return policy?.restartPolicy !== "RestartContainer" && (maySwap(desired, container) || maySwap(allocated, old));
  });
}
