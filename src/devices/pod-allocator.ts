import { throwIfAborted } from "../lib/errors.ts";
import type { NumaNodes } from "../lib/numa-nodes.ts";
import type { Container, Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { type PodAllocator, unexpectedAdmission } from "../resource-manager.ts";
import { type AllocateDeps, type IsAlreadyRunning, allocateTo } from "./allocate.ts";
import { devicesOf } from "./allocations.ts";
import { deviceHints } from "./hints.ts";

export interface DevicePodDeps extends AllocateDeps {
  readonly serialize: <T>(work: () => Promise<T>) => Promise<T>;
  /** Numbers of the target's NUMA nodes. */
  readonly numaNodes: readonly number[];
  readonly isAlreadyRunning: IsAlreadyRunning;
  readonly signal: AbortSignal;
}

/** Allocates devices to the containers of a pod, in their start order. Devices of an init container are reused by the containers after it; those
 *  of a sidecar are not. Allocations made so far stay until the pod's devices are freed. (kubelet, devicemanager/manager.go) */
export function createPodAllocator(deps: DevicePodDeps, pod: Pod): PodAllocator {
  const { allocations, numaNodes, isAlreadyRunning, serialize, signal } = deps;
  const initContainers = new Set(pod.spec.initContainers ?? []);
  const reusable = new Map<string, readonly string[]>();
  const allocate = async (container: Container, nodes: NumaNodes | undefined) => {
    await allocateTo(deps, { pod, container, reusable, isAlreadyRunning, nodes }, signal);
    const endsEarly = initContainers.has(container) && !isSidecar(container);
    for (const [resource, allocation] of allocations.ofContainer(pod.metadata.uid, container.name)) {
      const has = devicesOf(allocation);
      const others = (reusable.get(resource) ?? []).filter((id) => !has.includes(id));
      reusable.set(resource, endsEarly ? [...others, ...has] : others);
    }
  };
  return {
    hints: (container) => deviceHints({ ...deps, numaNodes, pod, reusable }, container),
    async allocate(container, { nodes }) {
      try {
        await serialize(() => allocate(container, nodes));
        return undefined;
      } catch (error) {
        throwIfAborted(signal);
        return unexpectedAdmission(error);
      }
    },
  };
}
