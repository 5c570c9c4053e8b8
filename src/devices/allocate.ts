import type { ClockAndLog } from "../lib/log.ts";
import { type NumaNodes, hasNode } from "../lib/numa-nodes.ts";
import { timed } from "../lib/timed.ts";
import type { Container, Pod } from "../objects.ts";
import { isExtendedResource, isProvidedByClaim } from "../pod/extended-resource.ts";
import { quantityValue } from "../pod/quantity.ts";
import { type DeviceAllocation, type DeviceAllocations, allocatedDevices, type AllocationKey } from "./allocations.ts";
import type { Inventory } from "./inventory.ts";
import type { DevicePlugin } from "./plugin.ts";
import { messageOf } from "../lib/errors.ts";

export interface DeviceMeasures {
  /** A plugin requests its registration over the registration socket. */
  registering(resource: string): void;
  /** An allocation by a plugin has ended, successfully or not. */
  allocated(resource: string, ms: number): void;
}

export interface AllocateDeps extends ClockAndLog {
  readonly inventory: Inventory;
  readonly allocations: DeviceAllocations;
  readonly save: () => Promise<void>;
  readonly measures: Pick<DeviceMeasures, "allocated">;
}

/** True for a pod that was admitted by an earlier process and is alive in the runtime, until all sources have listed their pods. All of
 *  its containers keep their devices, including those that have ended or have not started. A kubelet checks running containers only, and
 *  therefore terminates a pod whose init container had a device. */
export type IsAlreadyRunning = (uid: string) => boolean;

/** NUMA node of devices without topology information. */
const noNumaNode = -1;

export interface AllocationTarget {
  readonly pod: Pod;
  readonly container: Container;
  /** Devices by resource that the container may reuse. */
  readonly reusable: ReadonlyMap<string, readonly string[]>;
  readonly isAlreadyRunning: IsAlreadyRunning;
  /** NUMA nodes whose devices are preferred; undefined for any. */
  readonly nodes?: NumaNodes | undefined;
}

/** Allocates the devices that a container requests and does not have yet. */
export async function allocateTo(deps: AllocateDeps, to: AllocationTarget, signal: AbortSignal): Promise<void> {
  const { allocations } = deps;
  let changed = false;
  for (const [resource, required] of requestedDevices(deps, to.container)) {
    if (isProvidedByClaim(to.pod, to.container.name, resource)) continue;
    const key: AllocationKey = { uid: to.pod.metadata.uid, container: to.container.name, resource };
    const allocation = await newAllocation(deps, key, required, to, signal);
    if (allocation) allocations.set(key, allocation);
    changed ||= allocation !== undefined;
  }
  if (changed) await deps.save();
}

/** Requested devices by resource, for resources of device plugins. Their requests equal their limits. */
export function requestedDevices(
  { inventory, allocations }: Pick<AllocateDeps, "inventory" | "allocations">,
  { resources }: Pick<Container, "resources">,
): readonly (readonly [resource: string, required: number])[] {
  const limits = Object.entries(resources?.limits ?? {}).filter(([name]) => isExtendedResource(name));
  if (limits.length === 0) return [];
  const had = new Set(allocations.resources());
  return limits
    .filter(([name]) => inventory.hasDevices(name) || had.has(name))
    .map(([name, quantity]) => [name, quantityValue(quantity)] as const);
}

/** @returns undefined if nothing needs to be allocated. */
async function newAllocation(
  { inventory, allocations, measures, clock, log }: AllocateDeps,
  key: AllocationKey,
  required: number,
  { reusable, isAlreadyRunning, nodes }: AllocationTarget,
  signal: AbortSignal,
): Promise<DeviceAllocation | undefined> {
  const { uid, container, resource } = key;
  const known = allocations.get(key);
  const has = known ? allocatedDevices(known) : [];
  if (known && has.length !== required)
    throw new Error(
      `pod "${uid}" container "${container}" changed request for resource "${resource}" from ${has.length} to ${required}`,
    );
  if (isAlreadyRunning(uid)) return undefined;
  const healthy = inventory.healthy(resource);
  if (!inventory.hasDevices(resource)) throw new Error(`cannot allocate unregistered device ${resource}`);
  if (healthy.length === 0)
    throw new Error(`no healthy devices present; cannot allocate unhealthy devices ${resource}`);
  if (!has.every((id) => healthy.includes(id)))
    throw new Error(
      `previously allocated devices are no longer healthy; cannot allocate unhealthy devices ${resource}`,
    );
  if (known || required === 0) return undefined;
  const plugin = connectedPlugin(inventory, resource);
  const inUse = allocations.inUse(resource);
  const available = healthy.filter((id) => !inUse.has(id));
  const choice = { resource, required, available, nodes, nodesOf: numaNodesOf(inventory, resource), plugin };
  const ids = await chooseDevices({ ...choice, reusable: reusable.get(resource) ?? [] }, signal);
  log.debug({ uid, container, resource, devices: ids }, "allocated devices");
  const response = await timed(
    clock,
    () => plugin.allocate(ids, signal),
    (ms) => measures.allocated(resource, ms),
  );
  return { devices: groupByNumaNode(inventory, resource, ids), response };
}

/** @throws Error if the resource's plugin is gone. */
export function connectedPlugin(inventory: Inventory, resource: string): DevicePlugin {
  const endpoint = inventory.endpoint(resource);
  if (!endpoint) throw new Error(`unknown Device Plugin ${resource}`);
  if (!endpoint.plugin || endpoint.stopped) throw new Error(`endpoint ${resource} has been stopped`);
  return endpoint.plugin;
}

/** Returns the numbers of a device's NUMA nodes; none for a device without topology information. */
export function numaNodesOf(inventory: Pick<Inventory, "device">, resource: string): (id: string) => readonly number[] {
  return (id) => inventory.device(resource, id)?.topology?.nodes.map(({ ID }) => Number(ID)) ?? [];
}

function groupByNumaNode(
  inventory: Inventory,
  resource: string,
  ids: readonly string[],
): ReadonlyMap<number, readonly string[]> {
  const nodes = new Map<number, string[]>();
  const nodesOf = numaNodesOf(inventory, resource);
  for (const id of ids) {
    const of = nodesOf(id);
    for (const node of of.length > 0 ? of : [noNumaNode]) nodes.set(node, [...(nodes.get(node) ?? []), id]);
  }
  return nodes;
}

interface ChoiceInput {
  readonly resource: string;
  /** Number of devices that the container requests. */
  readonly required: number;
  /** Healthy devices that no container has. */
  readonly available: readonly string[];
  /** Devices of init containers, which end before this container starts. */
  readonly reusable: readonly string[];
  /** NUMA nodes whose devices are preferred; undefined for any. */
  readonly nodes: NumaNodes | undefined;
  /** NUMA nodes of a device. */
  readonly nodesOf: (id: string) => readonly number[];
  readonly plugin: DevicePlugin;
}

/** Chooses the devices of a container: first devices that init containers of its pod had, then devices of the preferred NUMA nodes, then
 *  any others. If there is a choice, the plugin decides: among the devices of the nodes if they suffice, otherwise among the remaining
 *  devices.
 *  @throws Error in the kubelet's words if too few are available; the plugin's failure. (kubelet, devicemanager/manager.go) */
async function chooseDevices(input: ChoiceInput, signal: AbortSignal): Promise<readonly string[]> {
  const { resource, required, available, reusable, plugin } = input;
  const chosen = reusable.slice(0, required);
  const needed = required - chosen.length;
  if (needed === 0) return chosen;
  if (available.length < needed)
    throw new Error(
      `requested number of devices unavailable for ${resource}. Requested: ${needed}, Available: ${available.length}`,
    );
  const { aligned, others } = byAffinity(input);
  const choose = async (given: readonly string[], mustInclude: readonly string[]) => {
    const all = [...new Set([...given, ...mustInclude])];
    const preferred = await preferredDevices(plugin, { available: all, mustInclude, required }, signal);
    return preferred.filter((id) => given.includes(id));
  };
  const first =
    needed < aligned.length ? [...chosen, ...(await choose(aligned, chosen)), ...aligned] : [...chosen, ...aligned];
  const enough = [...new Set(first)].slice(0, required);
  if (enough.length === required) return enough;
  return [...new Set([...enough, ...(await choose(available, enough)), ...others])].slice(0, required);
}

/** Available devices of the preferred nodes, and all others: devices of other nodes before devices without a node. */
function byAffinity({ available, nodes, nodesOf }: ChoiceInput): {
  readonly aligned: readonly string[];
  readonly others: readonly string[];
} {
  if (nodes === undefined) return { aligned: [], others: available };
  const isAligned = (id: string) => nodesOf(id).some((node) => hasNode(nodes, node));
  const elsewhere = available.filter((id) => !isAligned(id));
  return {
    aligned: available.filter(isAligned),
    others: [
      ...elsewhere.filter((id) => nodesOf(id).length > 0),
      ...elsewhere.filter((id) => nodesOf(id).length === 0),
    ],
  };
}

async function preferredDevices(
  plugin: DevicePlugin,
  choice: { readonly available: readonly string[]; readonly mustInclude: readonly string[]; readonly required: number },
  signal: AbortSignal,
): Promise<readonly string[]> {
  if (!plugin.options.getPreferredAllocationAvailable) return [];
  const { available, mustInclude, required: size } = choice;
  try {
    return await plugin.preferredAllocation({ available, mustInclude, size }, signal);
  } catch (error) {
    throw new Error(`device plugin GetPreferredAllocation rpc failed with err: ${messageOf(error)}`, { cause: error });
  }
}
