import type { Device, RegisterRequest } from "../gen/device-plugin.ts";
import { CodedError, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { PluginHandler, RegisteringPlugin } from "../plugins/ports.ts";
import { isExtendedResource } from "../pod/extended-resource.ts";
import type { Host } from "../seams/host.ts";
import type { PluginDirectory } from "./directory.ts";
import type { Inventory } from "./inventory.ts";
import { type DevicePlugin, connectPlugin } from "./plugin.ts";

export interface DevicePluginsDeps extends ClockAndLog {
  readonly host: Pick<Host, "dial" | "budget">;
  readonly directory: Pick<PluginDirectory, "pluginSocket">;
  readonly inventory: Inventory;
  /** Timeout of plugin calls, milliseconds. */
  readonly requestTimeoutMs: number;
  /** Called with a plugin's device list. @param changed IDs of devices that are new or whose health changed. */
  readonly onListed: (resource: string, changed: readonly string[]) => void;
  readonly onGone: () => void;
}

const version = "v1beta1";

/** Registered device plugins. A lost plugin is not called again until it registers again. (kubelet,
 *  devicemanager/plugin/v1beta1) */
export function createDevicePlugins(deps: DevicePluginsDeps) {
  const { directory, inventory, log } = deps;
  const closing = new AbortController();
  const followed = new Set<Promise<void>>();
  /** Plugins that registered in plugins_registry, by endpoint. */
  const registeredByEndpoint = new Map<string, DevicePlugin>();

  const handleDevices = (resource: string, plugin: DevicePlugin, devices: readonly Device[]) => {
    if (inventory.endpoint(resource)?.plugin !== plugin) return;
    const changed = inventory.setDevices(resource, devices);
    const numbers = { resource, devices: devices.length, healthy: inventory.healthy(resource).length };
    if (changed.length > 0) log.info(numbers, "device plugin reported changed devices");
    deps.onListed(resource, changed);
  };
  const follow = async (resource: string, plugin: DevicePlugin) => {
    let why = "the plugin closed its device stream";
    try {
      for await (const devices of plugin.devices(closing.signal)) handleDevices(resource, plugin, devices);
    } catch (error) {
      why = messageOf(error);
    }
    plugin.close();
    if (closing.signal.aborted || inventory.endpoint(resource)?.plugin !== plugin) return;
    log.warn({ resource, why }, "lost a device plugin; its devices are unhealthy until it registers again");
    inventory.markStopped(resource, plugin);
    deps.onGone();
  };

  const connect = async (resource: string, socket: string, given: AbortSignal) => {
    const signal = AbortSignal.any([given, closing.signal]);
    const plugin = await connectPlugin(deps, socket, signal);
    inventory.setPlugin(resource, plugin)?.close();
    log.info({ resource }, "registered device plugin");
    const following = follow(resource, plugin).finally(() => followed.delete(following));
    followed.add(following);
    return plugin;
  };

  const handler: PluginHandler = {
    validate: validatePlugin,
    async register({ name, endpoint }, signal) {
      registeredByEndpoint.set(endpoint, await connect(name, endpoint, signal));
    },
    async deregister({ endpoint }) {
      registeredByEndpoint.get(endpoint)?.close();
      registeredByEndpoint.delete(endpoint);
    },
  };
  return {
    /** Registers a plugin: reads its options, then follows its device list. @throws CodedError in the kubelet's words. */
    async register(request: RegisterRequest, signal: AbortSignal) {
      await connect(request.resourceName, socketPathOf(directory, request), signal);
    },
    /** Handles plugins that register in plugins_registry. */
    handler,
    /** Disconnects all plugins, without reporting their devices as lost. */
    async close() {
      closing.abort();
      await Promise.all(followed);
    },
  };
}

function invalidResource(name: string): string {
  return `the ResourceName ${JSON.stringify(name)} is invalid`;
}

/** @throws CodedError invalid_argument, in the kubelet's words, for an unsupported version or invalid name. */
function validatePlugin({ name, versions }: RegisteringPlugin): void {
  if (!versions.includes(version))
    throw new CodedError(
      "invalid_argument",
      `manager version, ${version}, is not among plugin supported versions [${versions.join(" ")}]`,
    );
  if (!isExtendedResource(name))
    throw new CodedError("invalid_argument", `invalid name of device plugin socket: ${invalidResource(name)}`);
}

/** @throws CodedError invalid_argument for an invalid request. */
function socketPathOf(directory: Pick<PluginDirectory, "pluginSocket">, request: RegisterRequest): string {
  const { version: asked, resourceName, endpoint } = request;
  if (asked !== version)
    throw new CodedError(
      "invalid_argument",
      `requested API version ${JSON.stringify(asked)} is not supported by kubelet. Supported version is ["${version}"]`,
    );
  if (!isExtendedResource(resourceName)) throw new CodedError("invalid_argument", invalidResource(resourceName));
  const socket = directory.pluginSocket(endpoint);
  if (socket !== undefined) return socket;
  throw new CodedError(
    "invalid_argument",
    `the endpoint ${JSON.stringify(endpoint)} is invalid: it must be a socket in the directory of kubelet.sock`,
  );
}
