import { gateEnabled } from "../config/feature-gates.ts";
import { createCsiNodeSync } from "../csi/csi-node-sync.ts";
import { createCsiNodes } from "../csi/csi-node.ts";
import { createCsiDriverRegistry } from "../csi/driver-registry.ts";
import { topologyRule } from "../csi/topology.ts";
import { pluginRegistryOf } from "../host/layout.ts";
import { createPluginManager } from "../plugins/manager.ts";
import type { PluginHandlers } from "../plugins/registration.ts";
import { type Volumes, createVolumes } from "../volumes/volumes.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";

/** The plugins that register on the target, including CSI drivers. */
export type RegisteredPlugins = ReturnType<typeof createPluginRegistration>;

/** Creates plugin registration. A standalone node, which has no CSINode, does not register plugins.
 *  @param handlers handlers of other plugins than CSI drivers, by type. */
export function createPluginRegistration(
  { config, target, client, standalone, metrics, clock, log, partsOf }: NodeContext,
  { nodes }: Cluster,
  handlers: PluginHandlers,
) {
  const { host, link } = target;
  const { nodeName, rootDir } = config;
  const { nodeChanged } = partsOf("csiDrivers").signals;
  const csiNodes = createCsiNodes({ client, nodeName, clock, mayLabel: topologyRule(config.driverTopologyKeys) });
  const drivers = createCsiDriverRegistry({ host, client, csiNodes, measures: metrics.measures.drivers, clock, log });
  const onChange = () => nodeChanged.send();
  const published = createCsiNodeSync({ csiNodes, drivers, nodes, onChange, clock, log });
  const plugins = createPluginManager({
    // Over a link the directories are polled: a watch would use one of the link's few channels for each directory, while polling
    // needs one exchange.
    host: link ? { fs: host.fs, dial: host.dial.bind(host) } : host,
    directory: pluginRegistryOf(rootDir),
    handlers: { ...handlers, CSIPlugin: drivers.handler },
    measures: metrics.measures.plugins,
    clock,
    log,
  });
  return {
    drivers,
    /** Reason why CSI drivers keep the node from being ready; undefined if they do not. */
    problem: () => (standalone ? undefined : published.problem()),
    runnables: [published, drivers.updates, plugins],
  };
}

export function createNodeVolumes(
  { config, target, metrics, partsOf }: NodeContext,
  { objects, claims, nodes, tokens, trustBundles, podCertificates, events }: Cluster,
  { waitForTarget, drivers, agent }: ObservedTarget,
): Volumes {
  const { volumesInUse, signals, ...parts } = partsOf("volumes");
  return createVolumes({
    ...parts,
    host: target.host,
    nodeName: config.nodeName,
    rootDir: config.rootDir,
    objects,
    claims,
    tokens,
    trustBundles,
    podCertificates,
    drivers,
    node: nodes.node,
    allocatable: agent.allocatable,
    mountsAllModes: gateEnabled(config.kubelet.featureGates, "SELinuxMount"),
    onVolumesInUse(names) {
      volumesInUse.set(names);
      signals.nodeChanged.send();
    },
    waitForTarget,
    events,
    measures: metrics.measures.volumes,
  });
}
