import { createStorage, type Storage } from "./storage.ts";
import { ContainerState } from "../gen/cri.ts";
import { changedFacts, type HostFacts, readFacts } from "../host/facts.ts";
import { createTargetClock } from "../host/target-clock.ts";
import { type Service, onceThenIdle } from "../lib/service-group.ts";
import { serviceFilter } from "../service-tunnel/destinations.ts";
import { ownedTunnelResources } from "../service-tunnel/rules.ts";
import { type ServiceTunnel, createServiceTunnel } from "../service-tunnel/service-tunnel.ts";
import { type NodeAgent, createNodeAgent } from "../node/node-agent.ts";
import { ownAddresses } from "../node/own-addresses.ts";
import { nameResolves } from "../node/own-name.ts";
import { createPodCidr } from "../node/pod-cidr.ts";
import { type RebootWatch, createRebootWatch } from "../node/reboot-watch.ts";
import { type RuntimeHealth, createRuntimeHealth } from "../node/runtime-health.ts";
import { type Isolation, isolationCondition } from "../node/target-conditions.ts";
import { type TargetRights, createTargetRights } from "../node/target-rights.ts";
import type { LogReader, WaitForTarget } from "../pipeline.ts";
import { type Pleg, createPleg } from "../pleg/pleg.ts";
import { nodeLabel } from "../pod/labels.ts";
import { createLogReader } from "../logs/reader.ts";
import { readTerminationMessage, readWrittenMessage } from "../runtime/termination-message.ts";
import { TargetError, type TargetNetwork } from "../seams/provider.ts";
import { openTargetCgroups } from "./cgroups.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { limitationReporter } from "./limitation-reporter.ts";
import { createResourceManagers } from "./resource-managers.ts";
import { nodeSettings } from "./settings.ts";

/** Creates the watches of the target's pods, devices and health, and the Node agent.
 *  @param onReboot called once when the target has rebooted, or has changed while it was unreachable.
 *  @throws errors of reading the target. */
export async function observeTarget(
  context: NodeContext,
  cluster: Cluster,
  onReboot: () => void,
): Promise<ObservedTarget> {
  const { config, target, standalone, clock, log, hand, signal } = context;
  const { runtime, sharing } = target;
  const ownerLabels: Record<string, string> = sharing === "shared" ? { [nodeLabel]: config.nodeName } : {};
  const logs = createLogs(context);
  const pleg = createPodWatch(context, ownerLabels, logs);
  const rights = createTargetRights(target, { log });
  const [{ devices, cpus, dra, managers }] = await Promise.all([createResourceManagers(context), rights.read(signal)]);
  const { nodeChanged } = hand("runtimeHealth").signals;
  const health = createRuntimeHealth({ runtime, clock, log, onChange: () => nodeChanged.send() });
  const storage = createStorage(context, cluster, {
    DevicePlugin: devices.handler,
    ...(dra && { DRAPlugin: dra.handler }),
  });
  const made: { serviceTunnel?: ServiceTunnel } = {};
  const isolation = createIsolation(target.network, made);
  const agent = await createAgent(context, cluster, { pleg, rights, devices, health, storage, isolation });
  const cgroups = await openTargetCgroups(context, cluster, agent.facts);
  const reboot = watchReboots(context, agent.facts, onReboot);
  if (reboot && target.network?.tunneled) made.serviceTunnel = createNodeTunnel(context, cluster, reboot.present);
  const targetClock = createTargetClock({ ...target, clock, log });
  const podCidr = createPodCidr({ nodes: cluster.nodes, runtime, clock, log });
  // Pods are added once the runtime's pods are listed and its name is known, which is part of container IDs.
  const shown: Service = {
    ...pleg,
    ready: async (stop) => void (await Promise.all([pleg.ready(stop), health.answered(stop)])),
  };
  const link = reboot ? [reboot, followLink(context), made.serviceTunnel ?? removeTunnelLeftovers(context)] : [];
  const own = [...link, targetClock, health, podCidr, ...managers.flatMap(({ services }) => services)];
  const running: readonly Service[] = [...own, ...(standalone ? [] : [...agent.services, ...storage.services]), shown];
  const waitForTarget = reboot && { waitForTarget: reboot.present };
  return {
    ...waitForTarget,
    ...made,
    ownerLabels,
    targetClock,
    rights,
    logs,
    pleg,
    health,
    devices,
    ...(cpus && { cpus }),
    managers,
    drivers: storage.drivers,
    agent,
    cgroups,
    running,
  };
}

function createLogs({ config, target, clock, log }: NodeContext): LogReader {
  const { host, runtime } = target;
  const isRunning = async (id: string, stop: AbortSignal) =>
    (await runtime.containerStatus(id, stop)).status?.state === ContainerState.CONTAINER_RUNNING;
  return createLogReader({ host, clock, log, roots: [config.kubelet.podLogsDir], runtime, isRunning });
}

function createPodWatch(
  { target, metrics, clock, log, hand }: NodeContext,
  ownerLabels: Readonly<Record<string, string>>,
  logs: LogReader,
): Pleg {
  const ends = { fs: target.host.fs, logs };
  return createPleg({
    ...hand("pleg"),
    runtime: target.runtime,
    clock,
    log,
    ownerLabels,
    measures: metrics.measures.pleg,
    terminationMessage: (...of) => readTerminationMessage(ends, ...of),
    writtenMessage: (...of) => readWrittenMessage(ends, ...of),
  });
}

/** Creates the service tunnel of pods into the cluster. */
function createNodeTunnel(
  { config, target, places, clock, log, hand }: NodeContext,
  cluster: Cluster,
  waitForTarget: WaitForTarget,
) {
  const { podCache, signals } = hand("clusterWay");
  const onAvailabilityChange = () => signals.nodeChanged.send();
  const { services, headless, events } = cluster;
  const { rootDir, nodeName, kubelet } = config;
  const report = limitationReporter(events, nodeName);
  const reaches = serviceFilter(target.network?.serviceNamespaces, kubelet.clusterDNS);
  const watched = { services, ...(headless && { headless }) };
  return createServiceTunnel({
    ...target,
    ...watched,
    places,
    serviceFilter: reaches,
    rootDir,
    nodeName,
    seen: podCache,
    waitForTarget,
    onAvailabilityChange,
    report: report,
    clock,
    log,
  });
}

/** Removes rules that an earlier service tunnel has left: they would reject packets of pods to the cluster's IPs. */
function removeTunnelLeftovers({ config, target: { host }, log }: NodeContext): Service {
  return onceThenIdle("no cluster way", async (signal) => {
    try {
      for (const left of await ownedTunnelResources(host, config.rootDir, signal)) await left.remove(signal);
    } catch (err) {
      if (!signal.aborted) log.debug({ err }, "cannot remove leftovers of an earlier service tunnel");
    }
  });
}

/** Creates a function that returns why pods cannot reach the cluster. */
function createIsolation(
  network: TargetNetwork | undefined,
  made: { readonly serviceTunnel?: ServiceTunnel },
): NodeParts["isolation"] {
  if (network?.isolated) {
    const isolation = isolationCondition(network.obstacle);
    return () => isolation;
  }
  if (!network?.tunneled) return undefined;
  return () => {
    const message = made.serviceTunnel?.unavailableReason();
    return message === undefined ? undefined : { reason: "ServiceTunnelUnavailable", message };
  };
}

interface NodeParts extends Pick<ObservedTarget, "rights" | "devices"> {
  readonly pleg: Pick<Pleg, "unhealthy">;
  readonly rights: TargetRights;
  readonly health: RuntimeHealth;
  readonly storage: Pick<Storage, "problem">;
  readonly isolation: (() => Isolation | undefined) | undefined;
}

/** Creates the agent of the Node object, its Lease and its status. */
async function createAgent(
  { config, target, client, account, metrics, clock, log, hand, signal }: NodeContext,
  { events, nodes }: Cluster,
  { pleg, rights, devices, health, storage, isolation }: NodeParts,
): Promise<NodeAgent> {
  const { host, runtime, link } = target;
  const { reachable, pressure, shuttingDown, volumesInUse, signals } = hand("nodeAgent");
  const agent = await createNodeAgent(
    {
      settings: nodeSettings(config, target),
      client,
      ...(account && { tainter: account.client }),
      ownAddresses: link || config.kubeletAddress.of !== "host" ? ownAddresses() : undefined,
      nodes,
      resolves: nameResolves,
      host,
      images: runtime,
      pressure,
      runtime: health,
      unhealthy: () => [pleg.unhealthy()].filter((problem) => problem !== undefined),
      problems: () => [storage.problem()].filter((problem) => problem !== undefined),
      goingDown: shuttingDown.get,
      volumesInUse: volumesInUse.get,
      ...(link && { link }),
      ...(isolation && { isolation }),
      ...(account && config.kubelet.enableServer && { reachable: reachable.get }),
      rights,
      devices,
      measures: metrics.measures.nodeStart,
      events,
      clock,
      log,
    },
    signal,
  );
  signals.nodeChanged.subscribe(agent.triggerUpdate);
  return agent;
}

/** Creates the check whether a remote target has rebooted or changed while it was unreachable. */
function watchReboots(
  { target: { host, link }, claim, clock, log }: NodeContext,
  facts: HostFacts,
  onReboot: () => void,
): RebootWatch | undefined {
  if (!link) return undefined;
  const unfit = async (signal: AbortSignal) => {
    try {
      await claim.renew(signal);
    } catch (error) {
      if (error instanceof TargetError) return error.message;
      throw error;
    }
    const changed = changedFacts(facts, await readFacts(host, signal));
    return changed.length > 0 ? `other than before: ${changed.join(", ")}` : undefined;
  };
  return createRebootWatch({ host, link, claim, bootID: facts.bootID, unfit, onReboot, clock, log });
}

/** Updates the Node's status as soon as the target is lost or back. */
function followLink({ target: { link }, hand }: NodeContext): Service {
  const { nodeChanged } = hand("targetLink").signals;
  return onceThenIdle("link", () => link?.onChange(() => nodeChanged.send()));
}
