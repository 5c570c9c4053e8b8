import { messageOf } from "../lib/errors.ts";
import type { DevicePlugin } from "./plugin.ts";

export interface ChoiceInput {
  readonly resource: string;
  /** Number of devices that the container requests. */
  readonly required: number;
  /** Healthy devices, allocated or not. */
  readonly healthy: readonly string[];
  readonly inUse: ReadonlySet<string>;
  /** Devices of init containers, which end before this container starts. */
  readonly reusable: readonly string[];
  readonly plugin: DevicePlugin;
}

/** Chooses the devices of a container: first those that init containers of its pod had, then the plugin's preference, then any.
 *  @throws Error in the kubelet's words if too few are available; the plugin's failure. (kubelet, devicemanager/manager.go) */
export async function chooseDevices(input: ChoiceInput, signal: AbortSignal): Promise<readonly string[]> {
  const { resource, required, healthy, inUse, reusable, plugin } = input;
  const chosen = reusable.slice(0, required);
  const needed = required - chosen.length;
  if (needed === 0) return chosen;
  const available = healthy.filter((id) => !inUse.has(id));
  if (available.length < needed)
    throw new Error(
      `requested number of devices unavailable for ${resource}. Requested: ${needed}, Available: ${available.length}`,
    );
  const preferred = await preferredDevices(
    plugin,
    { available: [...available, ...chosen], mustInclude: chosen, required },
    signal,
  );
  const order = [...preferred.filter((id) => available.includes(id)), ...available];
  return [...new Set([...chosen, ...order])].slice(0, required);
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
