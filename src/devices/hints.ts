import { type NumaNodes, hasNode, numaNodes } from "../lib/numa-nodes.ts";
import type { Container, Pod } from "../objects.ts";
import { podLimits } from "../pod/resources.ts";
import { type TopologyHint, type TopologyHints, hintsFor } from "../topology-hints.ts";
import { numaNodesOf, requestedDevices } from "./allocate.ts";
import { type Allocations, devicesOf } from "./allocations.ts";
import type { Inventory } from "./inventory.ts";

export interface DeviceHintInput {
  readonly inventory: Inventory;
  readonly allocations: Allocations;
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
  const has = allocatedDevices(input, request);
  if (has.length > 0)
    return has.length === count ? hintsOfDevices(input, request, { available: has, reusable: [] }) : [];
  const inUse = allocations.inUse(resource);
  const available = inventory.healthy(resource).filter((id) => !inUse.has(id));
  const reusable = container ? (input.reusable.get(resource) ?? []) : [];
  if (new Set([...available, ...reusable]).size < count) return [];
  return hintsOfDevices(input, request, { available, reusable });
}

/** Devices that the container or the pod already has. */
function allocatedDevices(
  { allocations, pod }: DeviceHintInput,
  { resource, container }: DeviceRequest,
): readonly string[] {
  const { initContainers = [], containers } = pod.spec;
  const of = container ? [container] : [...initContainers, ...containers];
  const has = of.map(({ name }) => allocations.get({ uid: pod.metadata.uid, container: name, resource }));
  return [...new Set(has.flatMap((allocation) => (allocation ? devicesOf(allocation) : [])))];
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
  // Nodes without devices of the resource are left out, which changes no preference: they need not be tried.
  const withDevices = known.filter((id) => all.some((nodes) => hasNode(nodes, id)));
  return hintsFor({
    ids: withDevices.length > 0 ? withDevices : known,
    couldSatisfy: (nodes) => within(nodes, all) >= count,
    satisfies: (nodes) => within(nodes, needed) === needed.length && needed.length + within(nodes, free) >= count,
  });
}
