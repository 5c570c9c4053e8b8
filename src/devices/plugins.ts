import type { Device, RegisterRequest } from "../gen/device-plugin.ts";
import type { Clock } from "../lib/clock.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
import type { Host } from "../seams/host.ts";
import type { PluginDirectory } from "./directory.ts";
import type { Inventory } from "./inventory.ts";
import { type DevicePlugin, connectPlugin } from "./plugin.ts";

export interface PluginsDeps {
  readonly host: Pick<Host, "dial">;
  readonly directory: Pick<PluginDirectory, "pluginSocket">;
  readonly inventory: Inventory;
  /** Timeout of plugin calls, milliseconds. */
  readonly requestTimeoutMs: number;
  /** Called with a plugin's list of devices. @param changed IDs of devices that are new or whose health changed. */
  readonly onListed: (resource: string, changed: readonly string[]) => void;
  readonly onGone: () => void;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface Plugins {
  /** Registers a plugin: reads its options, and follows its list of devices from then on.
   *  @throws CodedError in the kubelet's words. */
  register(request: RegisterRequest, signal: AbortSignal): Promise<void>;
  /** Disconnects all plugins, without further reports on their devices. */
  close(): Promise<void>;
}

const version = "v1beta1";

/** The registered plugins. A plugin that has gone is not called again: it registers when it is back. (kubelet,
 *  devicemanager/plugin/v1beta1) */
export function createPlugins(deps: PluginsDeps): Plugins {
  const { directory, inventory, log } = deps;
  const closing = new AbortController();
  const followed = new Set<Promise<void>>();

  const take = (resource: string, plugin: DevicePlugin, devices: readonly Device[]) => {
    if (inventory.endpoint(resource)?.plugin !== plugin) return;
    const changed = inventory.listed(resource, devices);
    const numbers = { resource, devices: devices.length, healthy: inventory.healthy(resource).length };
    if (changed.length > 0) log.info(numbers, "devices of a plugin have changed");
    deps.onListed(resource, changed);
  };
  const follow = async (resource: string, plugin: DevicePlugin) => {
    let why = "the plugin ended its list of devices";
    try {
      for await (const devices of plugin.devices(closing.signal)) take(resource, plugin, devices);
    } catch (error) {
      why = messageOf(error);
    }
    plugin.close();
    if (closing.signal.aborted || inventory.endpoint(resource)?.plugin !== plugin) return;
    log.warn({ resource, why }, "a device plugin has gone, its devices count as unhealthy until it registers again");
    inventory.gone(resource, plugin);
    deps.onGone();
  };

  return {
    async register(request, given) {
      const { resourceName: resource } = request;
      const signal = AbortSignal.any([given, closing.signal]);
      const plugin = await connectPlugin(deps, socketOf(directory, request), signal);
      inventory.connected(resource, plugin)?.close();
      log.info({ resource }, "a device plugin has registered");
      const following = follow(resource, plugin).finally(() => followed.delete(following));
      followed.add(following);
    },
    async close() {
      closing.abort();
      await Promise.all(followed);
    },
  };
}

/** @throws CodedError invalid_argument for an invalid request. */
function socketOf(directory: Pick<PluginDirectory, "pluginSocket">, request: RegisterRequest): string {
  const { version: asked, resourceName, endpoint } = request;
  if (asked !== version)
    throw new CodedError(
      "invalid_argument",
      `requested API version ${JSON.stringify(asked)} is not supported by kubelet. Supported version is ["${version}"]`,
    );
  if (!isExtendedResource(resourceName))
    throw new CodedError("invalid_argument", `the ResourceName ${JSON.stringify(resourceName)} is invalid`);
  const socket = directory.pluginSocket(endpoint);
  if (socket !== undefined) return socket;
  throw new CodedError(
    "invalid_argument",
    `the endpoint ${JSON.stringify(endpoint)} is invalid: name a socket in the directory of kubelet.sock`,
  );
}
