import { createCsiNodes } from "../csi/csi-node.ts";
import { createCsiDriverRegistry } from "../csi/driver-registry.ts";
import { createCsiNodeSync } from "../csi/csi-node-sync.ts";
import { topologyRule } from "../csi/topology.ts";
import { pluginRegistryOf } from "../host/layout.ts";
import type { Service } from "../lib/service-group.ts";
import type { StorageDrivers } from "../pipeline.ts";
import { createPluginManager } from "../plugins/manager.ts";
import type { PluginHandlers } from "../plugins/registration.ts";
import type { Cluster, NodeContext } from "./deps.ts";

/** The plugins that register on the target, including CSI drivers. */
export interface Storage {
  readonly drivers: StorageDrivers;
  /** Why the node is not ready because of CSI drivers; undefined if it is ready. */
  problem(): string | undefined;
  readonly services: readonly Service[];
}

/** Creates plugin registration. A standalone node, which has no CSINode, does not register plugins.
 *  @param handlers handlers of other plugins than CSI drivers, by type. */
export function createStorage(
  { config, target, client, standalone, metrics, clock, log, hand }: NodeContext,
  cluster: Cluster,
  handlers: PluginHandlers,
): Storage {
  const { host } = target;
  const { nodeName, rootDir } = config;
  const { nodeChanged } = hand("storageDrivers").signals;
  const csiNodes = createCsiNodes({ client, nodeName, clock, mayLabel: topologyRule(config.driverTopologyKeys) });
  const drivers = createCsiDriverRegistry({ host, client, csiNodes, measures: metrics.measures.drivers, clock, log });
  const onChange = () => nodeChanged.send();
  const published = createCsiNodeSync({ csiNodes, drivers, nodes: cluster.nodes, onChange, clock, log });
  const allHandlers = { ...handlers, CSIPlugin: drivers.handler };
  // A watch uses one of the few channels of a link per directory; polling needs one exchange.
  const seen = target.link ? { fs: host.fs, dial: host.dial.bind(host) } : host;
  const directory = pluginRegistryOf(rootDir);
  const plugins = createPluginManager({ host: seen, directory, handlers: allHandlers, clock, log });
  return {
    drivers,
    problem: () => (standalone ? undefined : published.problem()),
    services: [published, drivers.updates, plugins],
  };
}
