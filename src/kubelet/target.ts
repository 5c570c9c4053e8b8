import { createLimitationReporter } from "../api/limitations.ts";
import { ContainerState } from "../gen/cri.ts";
import type { HostFacts } from "../host/facts.ts";
import { createTargetClock } from "../host/target-clock.ts";
import { type Runnable, onceThenIdle } from "../lib/runnables.ts";
import { createLogReader } from "../logs/reader.ts";
import { createIptablesChains } from "../node/iptables-chains.ts";
import { type NodeAgent, createNodeAgent } from "../node/node-agent.ts";
import { nameResolves, ownAddresses } from "../node/own-name.ts";
import { createPodCidr } from "../node/pod-cidr.ts";
import { type RebootWatch, createRebootWatch, unfitReason } from "../node/reboot-watch.ts";
import { type RuntimeHealth, createRuntimeHealth } from "../node/runtime-health.ts";
import { type Isolation, isolationOf } from "../node/target-conditions.ts";
import { createTargetRights } from "../node/target-rights.ts";
import type { LogReader, WaitForTarget } from "../pipeline.ts";
import { type Pleg, createPleg } from "../pleg/pleg.ts";
import { nodeLabel } from "../pod/labels.ts";
import { countPlaceholders } from "../pod/placeholder-counts.ts";
import { readTerminationMessage, readWrittenMessage } from "../runtime/termination-message.ts";
import { serviceFilter } from "../service-tunnel/destinations.ts";
import { removeTunnelLeftovers } from "../service-tunnel/leftovers.ts";
import { type ServiceTunnel, createServiceTunnel } from "../service-tunnel/service-tunnel.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { createResourceManagers } from "./resource-managers.ts";
import { openTargetCgroups } from "./resources.ts";
import { makesIptablesChains, nodeSettings } from "./settings.ts";
import { type RegisteredPlugins, createPluginRegistration } from "./volumes.ts";

/** Creates the watches of the target's pods, devices and health, and the Node agent.
 *  @param onReboot called once when the target has rebooted, or has changed while it was unreachable.
 *  @throws errors of reading the target. */
export async function observeTarget(
  context: NodeContext,
  cluster: Cluster,
  onReboot: () => void,
): Promise<ObservedTarget> {
  const { config, target, standalone, clock, log, partsOf, signal } = context;
  const { host, runtime, link, network } = target;
  const ownerLabels: Record<string, string> = target.sharing === "shared" ? { [nodeLabel]: config.nodeName } : {};
  const logs = createLogs(context);
  const pleg = createPodWatch(context, ownerLabels, logs);
  const rights = createTargetRights(target, { log });
  const [resources] = await Promise.all([createResourceManagers(context), rights.read(signal)]);
  const { devices, dra, managers } = resources;
  const { signals, ...parts } = partsOf("runtimeHealth");
  const health = createRuntimeHealth({ ...parts, runtime, onChange: () => signals.nodeChanged.send() });
  const plugins = createPluginRegistration(context, cluster, {
    DevicePlugin: devices.handler,
    DRAPlugin: dra?.handler,
  });
  let serviceTunnel: ServiceTunnel | undefined;
  const isolation = isolationOf(network, () => serviceTunnel?.obstacle());
  const agent = await createAgent(context, cluster, { pleg, rights, devices, health, plugins, isolation });
  const cgroups = await openTargetCgroups(context, cluster, agent.facts);
  const reboot = watchReboots(context, agent.facts, onReboot);
  if (reboot && network?.tunneled) serviceTunnel = createNodeTunnel(context, cluster, reboot.present);
  const targetClock = createTargetClock({ host, link, clock, log });
  const podCidr = createPodCidr({ nodes: cluster.nodes, runtime, clock, log });
  const tunnel = serviceTunnel ?? removeTunnelLeftovers({ host, rootDir: config.rootDir, log });
  const running: readonly Runnable[] = [
    ...(reboot ? [reboot, followLink(context), tunnel] : []),
    targetClock,
    health,
    podCidr,
    ...iptablesChains(context),
    ...managers.flatMap(({ runnables }) => runnables),
    ...(standalone ? [] : [...agent.runnables, ...plugins.runnables]),
    afterRuntimeAnswers(pleg, health),
  ];
  return {
    ...resources,
    waitForTarget: reboot?.present,
    serviceTunnel,
    ownerLabels,
    targetClock,
    rights,
    logs,
    pleg,
    health,
    drivers: plugins.drivers,
    agent,
    cgroups,
    running,
  };
}

/** Creates the kubelet's iptables chains, if the node has them. */
function iptablesChains({ config, target, clock, log }: NodeContext): readonly Runnable[] {
  if (makesIptablesChains(config, target)) return [createIptablesChains({ host: target.host, clock, log })];
  if (config.kubelet.makeIPTablesUtilChains === undefined)
    log.info(
      {},
      "the kubelet's iptables chains are not created on a remote machine unless makeIPTablesUtilChains is true",
    );
  return [];
}

/** Delays `ready` until the runtime's pods have been listed and its name, which is part of container IDs, is known. Only then
 *  pods are added. */
function afterRuntimeAnswers(pleg: Pleg, health: RuntimeHealth): Runnable {
  return {
    name: pleg.name,
    run: pleg.run,
    ready: async (stop) => void (await Promise.all([pleg.ready(stop), health.answered(stop)])),
  };
}

function createLogs({ config, target, clock, log }: NodeContext): LogReader {
  const { host, runtime } = target;
  const isRunning = async (id: string, stop: AbortSignal) =>
    (await runtime.containerStatus(id, stop)).status?.state === ContainerState.CONTAINER_RUNNING;
  return createLogReader({ host, clock, log, roots: [config.kubelet.podLogsDir], runtime, isRunning });
}

function createPodWatch(
  { target, metrics, partsOf }: NodeContext,
  ownerLabels: Readonly<Record<string, string>>,
  logs: LogReader,
): Pleg {
  const { host, runtime } = target;
  const ends = { fs: host.fs, logs };
  return createPleg({
    ...partsOf("pleg"),
    runtime,
    ownerLabels,
    measures: metrics.measures.pleg,
    terminationMessage: (status, signal, written) => readTerminationMessage(ends, status, signal, written),
    writtenMessage: (status, signal) => readWrittenMessage(ends, status, signal),
  });
}

/** Creates the service tunnel of pods into the cluster. */
function createNodeTunnel(
  { config, target, tunnelLimits, partsOf }: NodeContext,
  { services, headless, events }: Cluster,
  waitForTarget: WaitForTarget,
): ServiceTunnel {
  const { signals, ...parts } = partsOf("serviceTunnel");
  const { rootDir, nodeName, kubelet } = config;
  return createServiceTunnel({
    ...parts,
    host: target.host,
    rootDir,
    nodeName,
    services,
    headless,
    serviceFilter: serviceFilter(target.network?.serviceNamespaces, kubelet.clusterDNS),
    tunnelLimits,
    waitForTarget,
    onObstacleChange: () => signals.nodeChanged.send(),
    report: createLimitationReporter(events, nodeName),
  });
}

/** Facts about the target for the Node's status. */
interface NodeParts extends Pick<ObservedTarget, "pleg" | "rights" | "devices" | "health"> {
  readonly plugins: RegisteredPlugins;
  readonly isolation: (() => Isolation | undefined) | undefined;
}

/** Creates the agent of the Node object, its Lease and its status. */
async function createAgent(
  { config, target, client, account, configuredMetadata, fencingToken, isStillOwner, ...context }: NodeContext,
  { events, nodes }: Cluster,
  { pleg, rights, devices, health, plugins, isolation }: NodeParts,
): Promise<NodeAgent> {
  const { metrics, partsOf, signal } = context;
  const { host, runtime, link } = target;
  const { desired, status, reachable, shuttingDown, volumesInUse, ...parts } = partsOf("nodeAgent");
  const agent = await createNodeAgent(
    {
      ...parts,
      settings: nodeSettings(config, target),
      client,
      configured: configuredMetadata,
      isStillOwner,
      isTakenOver: fencingToken !== undefined && fencingToken.epoch > 1,
      tainter: account?.client,
      ownAddresses: link || config.kubeletAddress.of !== "host" ? ownAddresses() : undefined,
      nodes,
      resolves: nameResolves,
      host,
      images: runtime,
      runtime: health,
      unhealthy: () => [pleg.unhealthy()].filter((problem) => problem !== undefined),
      problems: () => [plugins.problem()].filter((problem) => problem !== undefined),
      goingDown: shuttingDown.get,
      volumesInUse: volumesInUse.get,
      link,
      isolation,
      reachable: account && config.kubelet.enableServer ? reachable.get : undefined,
      rights,
      placeholders: () => countPlaceholders(desired.list(), status),
      devices,
      measures: metrics.measures.nodeStart,
      events,
    },
    signal,
  );
  parts.signals.nodeChanged.subscribe(agent.triggerUpdate);
  return agent;
}

/** Creates the check whether a remote target has rebooted or changed while it was unreachable. */
function watchReboots(
  { target: { host, link }, claim, clock, log }: NodeContext,
  facts: HostFacts,
  onReboot: () => void,
): RebootWatch | undefined {
  if (!link) return undefined;
  const unfit = (signal: AbortSignal) => unfitReason({ host, renewClaim: claim.renew, facts }, signal);
  return createRebootWatch({ host, link, claim, bootID: facts.bootID, unfit, onReboot, clock, log });
}

/** Updates the Node's status as soon as the target is lost or back. */
function followLink({ target: { link }, partsOf }: NodeContext): Runnable {
  const { nodeChanged } = partsOf("targetLink").signals;
  return onceThenIdle("link", () => link?.onChange(() => nodeChanged.send()));
}
