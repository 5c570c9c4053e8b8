import { throwIfAborted } from "../lib/errors.ts";
import { type NumaNodes, hasNode, numaNodes } from "../lib/numa-nodes.ts";
import type { Container, Pod } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { type PodAllocator, unexpectedAdmission } from "../resource-manager.ts";
import { type AllocateDeps, type IsAlreadyRunning, allocateTo, numaNodesOf, requestedDevices } from "./allocate.ts";
import { allocatedDevices, type DeviceAllocations } from "./allocations.ts";
import { podLimits } from "../pod/resources.ts";
import { type TopologyHint, type TopologyHints, hintsFor } from "../topology-hints.ts";
import type { Inventory } from "./inventory.ts";

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
      const has = allocatedDevices(allocation);
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

interface DeviceHintInput {
  readonly inventory: Inventory;
  readonly allocations: DeviceAllocations;
  /** Numbers of the target's NUMA nodes. */
  readonly numaNodes: readonly number[];
  readonly pod: Pod;
  /** Devices by resource that the pod's next container may reuse. */
  readonly reusable: ReadonlyMap<string, readonly string[]>;
}

/** Returns hints for the devices of a container, or of its pod as a whole. A resource none of whose devices belongs to a NUMA node may
 *  come from any node. (kubelet, devicemanager/topology_hints.go) @param container undefined for the pod. */
export function deviceHints(input: DeviceHintInput, container: Container | undefined): TopologyHints {
  const { pod } = input;
  const limits = container ? (container.resources?.limits ?? {}) : podLimits(pod, { overhead: false });
  const requested = requestedDevices(input, { resources: { limits } });
  return new Map(
    requested.map(([resource, count]) => [resource, hintsOfResource(input, { resource, count, container })] as const),
  );
}

interface DeviceRequest {
  readonly resource: string;
  readonly count: number;
  /** Undefined for the pod. */
  readonly container: Container | undefined;
}

function hintsOfResource(input: DeviceHintInput, request: DeviceRequest): readonly TopologyHint[] | undefined {
  const { inventory, allocations } = input;
  const { resource, count, container } = request;
  const nodesOf = numaNodesOf(inventory, resource);
  if (inventory.devices(resource).every(({ ID }) => nodesOf(ID).length === 0)) return undefined;
  const has = devicesOfContainer(input, request);
  if (has.length > 0)
    return has.length === count ? hintsOfDevices(input, request, { available: has, reusable: [] }) : [];
  const inUse = allocations.inUse(resource);
  const available = inventory.healthy(resource).filter((id) => !inUse.has(id));
  const reusable = container ? (input.reusable.get(resource) ?? []) : [];
  if (new Set([...available, ...reusable]).size < count) return [];
  return hintsOfDevices(input, request, { available, reusable });
}

/** Devices that the container or the pod already has. */
function devicesOfContainer(
  { allocations, pod }: DeviceHintInput,
  { resource, container }: DeviceRequest,
): readonly string[] {
  const { initContainers = [], containers } = pod.spec;
  const of = container ? [container] : [...initContainers, ...containers];
  const has = of.map(({ name }) => allocations.get({ uid: pod.metadata.uid, container: name, resource }));
  return [...new Set(has.flatMap((allocation) => (allocation ? allocatedDevices(allocation) : [])))];
}

function hintsOfDevices(
  { inventory, numaNodes: known }: DeviceHintInput,
  { resource, count }: DeviceRequest,
  { available, reusable }: { readonly available: readonly string[]; readonly reusable: readonly string[] },
): readonly TopologyHint[] | undefined {
  const nodesOf = numaNodesOf(inventory, resource);
  const setOf = (id: string) => numaNodes(nodesOf(id));
  const all = inventory.devices(resource).map(({ ID }) => setOf(ID));
  const free = available.map(setOf);
  const needed = reusable.map(setOf).filter((nodes) => nodes !== 0n);
  const within = (nodes: NumaNodes, devices: readonly NumaNodes[]) =>
    devices.filter((of) => (of & nodes) !== 0n).length;
  // Nodes without devices of the resource are skipped: trying them would not change which hints are preferred.
  const withDevices = known.filter((id) => all.some((nodes) => hasNode(nodes, id)));
  return hintsFor({
    ids: withDevices.length > 0 ? withDevices : known,
    couldSatisfy: (nodes) => within(nodes, all) >= count,
    satisfies: (nodes) => within(nodes, needed) === needed.length && needed.length + within(nodes, free) >= count,
  });
}
