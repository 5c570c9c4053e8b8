import { createDeviceManager, type DeviceManager } from "../devices/manager.ts";
import { pluginFiles, pluginDirectory, podResourcesDirectory } from "../host/plugin-paths.ts";
import { throttle } from "../lib/throttle.ts";
import { isAlive } from "../pod/sandbox.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { NodeContext } from "./deps.ts";
import { monitoredPods } from "./monitored-pods.ts";
import { deviceSettings } from "./settings.ts";

/** Minimum interval between Node updates caused by device plugins, milliseconds. */
const deviceUpdateIntervalMs = 1_000;

/** The resource managers of a node. */
export interface NodeResources {
  readonly devices: DeviceManager;
  /** All of them, in the order in which they allocate. */
  readonly managers: readonly ResourceManager[];
}

/** Creates the node's resource managers. To add one: its folder, an entry in kubelet/wiring.ts, a line here, and its files below. */
export function createResourceManagers({ config, target, metrics, clock, log, hand }: NodeContext): NodeResources {
  const { signals, desired, podCache, status, sourcesSynced } = hand("devices");
  const devices = createDeviceManager({
    ...deviceSettings(config),
    host: target.host,
    onChange: throttle(() => signals.nodeChanged.send(), deviceUpdateIntervalMs, clock),
    signals,
    pods: monitoredPods(desired, status),
    sourcesSeen: sourcesSynced.all,
    isAlive(uid) {
      const pod = podCache.get(uid);
      return pod !== undefined && isAlive(pod);
    },
    measures: metrics.measures,
    clock,
    log,
  });
  return { devices, managers: [devices] };
}

/** Files of resource managers, relative to a node's root directory: `graftlet remove` removes them. */
export const managerFiles: readonly string[] = [
  `${pluginDirectory}/${pluginFiles.socket}`,
  `${pluginDirectory}/${pluginFiles.checkpoint}`,
  `${podResourcesDirectory}/${pluginFiles.socket}`,
];
