import type { Device } from "../gen/device-plugin.ts";
import type { Clock } from "../lib/clock.ts";
import type { DevicePlugin } from "./plugin.ts";

/** Amounts of extended resources for the node's status. */
export interface DeviceAmounts {
  readonly capacity: Readonly<Record<string, string>>;
  readonly allocatable: Readonly<Record<string, string>>;
}

/** Devices offered by plugins, by resource. */
export type Inventory = ReturnType<typeof createInventory>;

export interface DevicePluginEndpoint {
  /** Undefined for a resource known only from the checkpoint. */
  readonly plugin: DevicePlugin | undefined;
  readonly stopped: boolean;
}

interface Resource {
  readonly plugin: DevicePlugin | undefined;
  /** Clock.monotonic() of the time when the plugin was lost. */
  readonly stoppedAt: number | undefined;
  /** Undefined until the plugin has listed its devices. */
  readonly devices: ReadonlyMap<string, Device> | undefined;
  /** Resources known from the checkpoint, though their plugin may not have registered yet. */
  readonly healthy: readonly string[];
  readonly unhealthy: number | undefined;
}

/** Grace period for which a resource keeps its capacity after its plugin is gone, milliseconds. (kubelet,
 *  devicemanager/types.go) */
const stopGracePeriodMs = 5 * 60_000;
const healthyWord = "Healthy";

/** @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ */
export function createInventory({ clock }: { readonly clock: Clock }) {
  const resources = new Map<string, Resource>();
  /** Expired resources of this node, reported as 0: otherwise they would be mistaken for resources that a user added to the
   *  Node. */
  const expired = new Set<string>();
  const change = (name: string, to: Partial<Resource>) => {
    const nothing = { plugin: undefined, stoppedAt: undefined, devices: undefined, healthy: [], unhealthy: undefined };
    resources.set(name, { ...nothing, ...resources.get(name), ...to });
  };
  const expire = (): boolean => {
    const over = [...resources].filter(
      ([, { stoppedAt }]) => stoppedAt !== undefined && clock.monotonic() - stoppedAt > stopGracePeriodMs,
    );
    for (const [name] of over) {
      resources.delete(name);
      expired.add(name);
    }
    return over.length > 0;
  };
  return {
    /** Records a registration. @returns the plugin that it replaces. */
    setPlugin(resource: string, plugin: DevicePlugin): DevicePlugin | undefined {
      const before = resources.get(resource)?.plugin;
      change(resource, { plugin, stoppedAt: undefined });
      return before;
    },
    /** Records a plugin's device list. @returns IDs of devices that are new or whose health changed. */
    setDevices(resource: string, devices: readonly Device[]): readonly string[] {
      const before = resources.get(resource)?.devices;
      const healthy = devices.filter(isHealthy).map(({ ID }) => ID);
      const unhealthy = devices.length - healthy.length;
      change(resource, { devices: new Map(devices.map((device) => [device.ID, device])), healthy, unhealthy });
      expired.delete(resource);
      return devices.filter(({ ID, health }) => before?.get(ID)?.health !== health).map(({ ID }) => ID);
    },
    /** Records the loss of a plugin: its devices are no longer healthy. Does nothing for a plugin that was replaced. */
    markStopped(resource: string, plugin: DevicePlugin) {
      const known = resources.get(resource);
      if (known?.plugin !== plugin) return;
      const unhealthy = (known.unhealthy ?? 0) + known.healthy.length;
      change(resource, { stoppedAt: clock.monotonic(), healthy: [], unhealthy });
    },
    /** Restores resources from the checkpoint, whose plugins have not registered again yet. */
    restore(names: readonly string[]) {
      for (const name of names)
        if (!resources.has(name))
          change(name, { stoppedAt: clock.monotonic(), devices: new Map(), healthy: [], unhealthy: 0 });
    },
    /** True once a plugin has listed its devices of the resource. */
    hasDevices: (resource: string): boolean => resources.get(resource)?.devices !== undefined,
    /** The plugin of a resource, connected or not; undefined for an unknown resource. */
    endpoint(resource: string): DevicePluginEndpoint | undefined {
      const known = resources.get(resource);
      return known && { plugin: known.plugin, stopped: known.stoppedAt !== undefined };
    },
    /** IDs of healthy devices, in the plugin's order. */
    healthy: (resource: string): readonly string[] => resources.get(resource)?.healthy ?? [],
    device: (resource: string, id: string): Device | undefined => resources.get(resource)?.devices?.get(id),
    /** All devices of a resource, healthy or not. */
    devices: (resource: string): readonly Device[] => [...(resources.get(resource)?.devices?.values() ?? [])],
    /** Amounts for the node; a resource whose plugin has been gone for too long counts as 0.
     *  @returns also a flag for a resource that has just expired. */
    amounts(): DeviceAmounts & { readonly hasExpired: boolean } {
      const hasExpired = expire();
      const listed = [...resources].flatMap(([name, { healthy, unhealthy }]) =>
        unhealthy === undefined ? [] : [{ name, healthy: healthy.length, all: healthy.length + unhealthy }],
      );
      const none = Object.fromEntries([...expired].map((name) => [name, "0"]));
      return {
        capacity: { ...none, ...Object.fromEntries(listed.map(({ name, all }) => [name, String(all)])) },
        allocatable: { ...none, ...Object.fromEntries(listed.map(({ name, healthy }) => [name, String(healthy)])) },
        hasExpired,
      };
    },
    /** Healthy devices by resource, for the checkpoint. */
    registered: (): ReadonlyMap<string, readonly string[]> =>
      new Map([...resources].flatMap(([name, { devices, healthy }]) => (devices ? [[name, healthy] as const] : []))),
  };
}

function isHealthy({ health }: Device): boolean {
  return health === healthyWord;
}
