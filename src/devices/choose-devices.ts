import { messageOf } from "../lib/errors.ts";
import { type NumaNodes, hasNode } from "../lib/numa-nodes.ts";
import type { DevicePlugin } from "./plugin.ts";

export interface ChoiceInput {
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

/** Chooses the devices of a container: first those that init containers of its pod had, then those of the preferred NUMA nodes, then any. The
 *  plugin chooses where there is a choice: among the devices of the nodes if these suffice, otherwise among those left.
 *  @throws Error in the kubelet's words if too few are available; the plugin's failure. (kubelet, devicemanager/manager.go) */
export async function chooseDevices(input: ChoiceInput, signal: AbortSignal): Promise<readonly string[]> {
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

/** Available devices of the preferred nodes, and all others: those of other nodes before those without a node. */
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
