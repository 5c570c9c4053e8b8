import { createFieldChecker } from "../admission/field-checker.ts";
import { resizeConditions } from "../allocation/resize-states.ts";
import { deletePod } from "../api/pod-deletion.ts";
import { gateEnabled } from "../config/feature-gates.ts";
import { type DiskMeter, createDiskMeter } from "../host/disk-meter.ts";
import { type Runnable, onceThenIdle } from "../lib/runnables.ts";
import { type DaemonSetPolicy, createDaemonSetPolicy } from "../node/daemon-set-policy.ts";
import { createPodsApi } from "../pods-api/pods-api.ts";
import type { ObjectRegistry } from "../sync/ports.ts";
import { type Probes, createProbes } from "../probes/probes.ts";
import { hasOwnNetwork, isTargetFeature } from "../seams/provider.ts";
import { createDriverVolumeStats } from "../stats/driver-volume-stats.ts";
import { createNodeStats } from "../stats/node-stats.ts";
import { createStatusManager } from "../status/manager.ts";
import { createPodApi } from "../status/pod-api.ts";
import { createPasses } from "../sync/passes.ts";
import { createPodManager } from "../sync/pod-manager.ts";
import type { Passes } from "../sync/pod-worker.ts";
import { createPodWorkers, createWorkersService } from "../sync/pod-workers.ts";
import { type Volumes, createVolumesService } from "../volumes/volumes.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { createMaintenance } from "./maintenance.ts";
import { unlimitedCpus } from "./resource-managers.ts";
import { createCgroupManagers, createPodAllocation, createResizeRetry } from "./resources.ts";
import { type PodStages, createImageRecords, createNodePodRuntime } from "./runtime.ts";
import { podSettings, syncLoopTimeout } from "./settings.ts";
import { createPodSources } from "./sources.ts";
import { createNodeVolumes } from "./volumes.ts";
import { type StatusGenerator, createStatusGenerator } from "../status/generate/generate-status.ts";

/** The parts of the pod pipeline that other components use. */
export type PodPipeline = ReturnType<typeof createPodPipeline>;

/** Creates the pod pipeline: reads pods from their sources, runs them, reports their status, and cleans up after them. */
export function createPodPipeline(context: NodeContext, cluster: Cluster, observed: ObservedTarget) {
  const { target, metrics, tracer, partsOf, clock, log } = context;
  const { waitForTarget } = observed;
  const { layout } = observed.cgroups;
  const stages = createPodStages(context, cluster, observed);
  const { statuses, allocation, probes, daemonSets, volumes, cgroups } = stages;
  const stop = new AbortController();
  const passes = createNodePasses(context, cluster, observed, stages);
  const measures = metrics.measures.workers;
  const workers = createPodWorkers({
    ...partsOf("podWorkers"),
    passes,
    waitForTarget,
    measures,
    tracer,
    stop: stop.signal,
  });
  const manager = createPodManager(partsOf("podManager"));
  const disk = createDiskMeter({ host: target.host, clock });
  const stats = createStats(context, cluster, observed, volumes, disk);
  const sources = createPodSources(context, cluster, observed, { ...stages, manager, workers });
  const { syncLoop } = sources;
  const parts = { ...stages, ...sources, workers, disk, usages: stats.usages };
  const { eviction, running: maintenance } = createMaintenance(context, cluster, observed, parts);
  const running: readonly Runnable[] = [
    statuses,
    ...createNodePodsApi(context),
    createVolumesService({ volumes, waitForTarget, clock, log }),
    probes,
    allocation.allocations.records,
    // Read before the first pod needs it, so that missing cgroup support is logged at the start; if the runtime does not respond now,
    // the first pod retries.
    onceThenIdle("cgroup-layout", async (signal) => void (await layout(signal).catch(() => undefined))),
    cgroups.nodeAllocatable,
    ...daemonSets.runnables,
    createWorkersService(workers, stop, clock),
    ...sources.running,
    ...maintenance,
    createResizeRetry(context),
    ...stats.runnables,
  ];
  const timeoutMs = syncLoopTimeout(context.config);
  const isStalled = () => observed.pleg.isStalled(timeoutMs) || syncLoop.isStalled(timeoutMs);
  /** The kubelet's message if pods are not synced; undefined while they are. */
  const syncLoopHealth = () => (isStalled() ? "sync Loop took longer than expected" : undefined);
  return { stats, volumes, manager, syncLoopHealth, eviction, running };
}

/** Creates the components that pod workers use. */
function createPodStages(context: NodeContext, cluster: Cluster, observed: ObservedTarget): PodStages {
  const { config, target, client, metrics, partsOf, privateColumn, onEnd } = context;
  const statuses = createStatusManager({
    ...partsOf("statusManager"),
    privateColumn,
    onEnd,
    api: createPodApi(client),
    measures: metrics.measures.statuses,
  });
  const allocation = createPodAllocation(context, cluster, observed);
  const probes = createNodeProbes(context, cluster, observed);
  const daemonSets = createNodeDaemonSetPolicy(context, cluster);
  const images = createImageRecords(context);
  const volumes = createNodeVolumes(context, cluster, observed);
  cluster.objects.onChange(volumes.objectChanged);
  for (const source of [cluster.trustBundles, cluster.podCertificates]) source.onChange(volumes.sourceChanged);
  const settings = podSettings(config, observed.ownerLabels, target.network, unlimitedCpus(context, observed.cpus));
  const cgroups = createCgroupManagers(context, cluster, observed, allocation, { daemonSets, settings });
  const stages = { statuses, allocation, probes, daemonSets, volumes, images, cgroups };
  return { ...stages, podRuntime: createNodePodRuntime(context, cluster, observed, { ...stages, settings }) };
}

/** Creates the Pods API, with its gate. */
function createNodePodsApi({ config, target, metrics, partsOf }: NodeContext): readonly Runnable[] {
  if (!gateEnabled(config.kubelet.featureGates, "PodsAPI")) return [];
  const { host } = target;
  const { rootDir } = config;
  return [createPodsApi({ ...partsOf("podsApi"), host, rootDir, measures: metrics.measures.podsApi })];
}

function createNodeProbes(
  { target: { host, runtime, link }, claim, metrics, clock, partsOf, onEnd }: NodeContext,
  { events }: Cluster,
  { targetClock, agent }: ObservedTarget,
): Probes {
  return createProbes({
    ...partsOf("probes"),
    host,
    runtime,
    link,
    claim,
    onEnd,
    targetClock,
    events,
    measures: metrics.measures.probes,
    agentStartedAt: clock.now(),
    hostIPs: agent.hostIPs,
  });
}

/** Creates the DaemonSet policy: from the configuration if it has a setting, or if pods are on the cluster network. */
function createNodeDaemonSetPolicy({ config, target, partsOf }: NodeContext, { nodes }: Cluster): DaemonSetPolicy {
  const setting = config.daemonSets ?? (hasOwnNetwork(target.network) ? undefined : "all");
  return createDaemonSetPolicy({ ...partsOf("placeholders"), setting, nodes, rootDir: config.rootDir });
}

function createNodeStatusGenerator(
  { config, partsOf }: NodeContext,
  { health, agent, managers }: ObservedTarget,
  { allocation: { allocations }, probes, daemonSets }: PodStages,
): StatusGenerator {
  const { resize, ...parts } = partsOf("statusGenerator");
  return createStatusGenerator({
    ...parts,
    resizeConditions: (uid) => resizeConditions(resize.get(uid)),
    isPlaceholder: (pod, observed) => daemonSets.daemonSetDecision(pod, observed).kind === "placeholder",
    allocations,
    probes,
    resourceHealth: gateEnabled(config.kubelet.featureGates, "ResourceHealthStatus")
      ? (pod, name) => managers.flatMap((manager) => manager.health?.(pod, name) ?? [])
      : undefined,
    stopSignals: gateEnabled(config.kubelet.featureGates, "ContainerStopSignals"),
    imageVolumeDigests: gateEnabled(config.kubelet.featureGates, "ImageVolumeWithDigest"),
    hostIPs: agent.hostIPs,
    runtimeName: () => health.version()?.runtimeName,
  });
}

/** Creates a registry that passes pods on to all given registries. */
function allOf(registries: readonly ObjectRegistry[]): ObjectRegistry {
  return {
    register: (pod) => registries.forEach((registry) => registry.register(pod)),
    unregister: (uid) => registries.forEach((registry) => registry.unregister(uid)),
  };
}

function createNodePasses(
  context: NodeContext,
  { events, objects, trustBundles, podCertificates }: Cluster,
  observed: ObservedTarget,
  stages: PodStages,
): Passes {
  const { config, target, client, metrics, partsOf, privateColumn } = context;
  const { rights, pleg, health, managers } = observed;
  const { statuses, allocation, probes, daemonSets, volumes, cgroups, podRuntime } = stages;
  const { cpuCFSQuota, syncFrequency } = config.kubelet;
  return createPasses({
    ...partsOf("passes"),
    privateColumn,
    inspector: pleg,
    podRuntime,
    volumes,
    objects: allOf([objects, trustBundles, podCertificates]),
    prober: probes,
    managers,
    hostResources: cgroups.hostResources,
    resizes: allocation.resizes,
    fieldChecker: createFieldChecker(
      async (feature, signal) =>
        isTargetFeature(feature) ? rights.lacks(feature) : target.runtime.unsupportedReason?.(feature, signal),
      { cpuCfsQuota: cpuCFSQuota },
    ),
    daemonSetDecision: daemonSets.daemonSetDecision,
    deletePod: (pod, until) => deletePod(client, pod, {}, until),
    statuses,
    statusOf: createNodeStatusGenerator(context, observed, stages),
    events,
    onRejected: metrics.measures.rejected,
    networkError: health.networkError,
    syncMs: syncFrequency,
  });
}

/** Creates node and pod statistics. */
function createStats(
  { config, target, metrics, clock, log, partsOf }: NodeContext,
  { events }: Cluster,
  { agent: { facts }, cgroups, targetClock, drivers }: ObservedTarget,
  volumes: Volumes,
  disk: DiskMeter,
) {
  const { kubelet, nodeName, rootDir } = config;
  const { host, runtime } = target;
  const queryHealth = gateEnabled(kubelet.featureGates, "CSIVolumeHealth");
  return createNodeStats({
    ...partsOf("stats"),
    host,
    runtime,
    layout: cgroups.layout,
    volumes,
    driverVolumeStats: createDriverVolumeStats({
      host,
      drivers,
      queryHealth,
      measures: metrics.measures.drivers,
      clock,
      log,
    }),
    disk,
    cgroupVersion: facts.cgroupVersion,
    facts,
    nodeName,
    rootDir,
    podLogsDir: kubelet.podLogsDir,
    diskPeriodMs: kubelet.volumeStatsAggPeriod,
    healthEvents: queryHealth ? events : undefined,
    targetClock,
  });
}
