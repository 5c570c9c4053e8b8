import { createFieldChecker } from "../admission/field-checker.ts";
import { resizeConditions } from "../allocation/resize-states.ts";
import { deletePod } from "../api/pod-deletion.ts";
import { gateEnabled } from "../config/feature-gates.ts";
import { type DiskMeter, createDiskMeter } from "../host/disk-meter.ts";
import { type Service, onceThenIdle } from "../lib/service-group.ts";
import { type DaemonSetPolicy, createDaemonSetPolicy } from "../node/daemon-set-policy.ts";
import { createPodsApi } from "../pods-api/pods-api.ts";
import type { ObjectRegistry, PodRuntime } from "../sync/ports.ts";
import { type Probes, createProbes } from "../probes/probes.ts";
import { hasOwnNetwork, isTargetFeature } from "../seams/provider.ts";
import { createDriverVolumeStats } from "../stats/driver-volume-stats.ts";
import { type NodeStats, createNodeStats } from "../stats/node-stats.ts";
import { type StatusGenerator, createStatusGenerator } from "../status/generate/status-generator.ts";
import { type StatusManager, createStatusManager } from "../status/manager.ts";
import { createPodApi } from "../status/pod-api.ts";
import { createPasses } from "../sync/passes.ts";
import { type PodManager, createPodManager } from "../sync/pod-manager.ts";
import type { Passes } from "../sync/pod-worker.ts";
import { type PodWorkers, createPodWorkers } from "../sync/pod-workers.ts";
import { createWorkersService } from "../sync/workers-service.ts";
import { createVolumesService } from "../volumes/service.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { createMaintenance } from "./maintenance.ts";
import { unlimitedCpus } from "./resource-managers.ts";
import {
  type CgroupManagers,
  type PodAllocation,
  createCgroupManagers,
  createPodAllocation,
  createResizeRetry,
} from "./resources.ts";
import { type ImageRecords, createImageRecords, createNodePodRuntime } from "./runtime.ts";
import { podSettings, syncLoopTimeout } from "./settings.ts";
import { createPodSources } from "./sources.ts";
import { createNodeVolumes } from "./volumes.ts";

/** The pod pipeline's parts that other components query. */
export interface PodPipeline {
  readonly stats: NodeStats;
  readonly volumes: Volumes;
  readonly manager: PodManager;
  /** The kubelet's message if pods are not synced; undefined while they are. */
  readonly syncLoopHealth: () => string | undefined;
  readonly running: readonly Service[];
}

/** Components that pod workers use. */
interface PodStages {
  readonly statuses: StatusManager;
  readonly allocation: PodAllocation;
  readonly probes: Probes;
  readonly daemonSets: DaemonSetPolicy;
  readonly volumes: Volumes;
  readonly images: ImageRecords;
  readonly cgroups: CgroupManagers;
  readonly podRuntime: PodRuntime;
}

/** Creates the pod pipeline: reads pods from their sources, runs them, reports their status, and cleans up after them. */
export function createPodPipeline(context: NodeContext, cluster: Cluster, observed: ObservedTarget): PodPipeline {
  const { target, clock, log } = context;
  const { waitForTarget, managers } = observed;
  const { layout } = observed.cgroups;
  const stages = createPodStages(context, cluster, observed);
  const { statuses, allocation, probes, daemonSets, volumes, images, cgroups } = stages;
  const stop = new AbortController();
  const passes = createNodePasses(context, cluster, observed, stages);
  const workers = createWorkers(context, observed, passes, stop.signal);
  const manager = createPodManager(context.stateOf("podManager"));
  const disk = createDiskMeter({ host: target.host, clock });
  const stats = createStats(context, cluster, observed, volumes, disk);
  const sources = createPodSources(context, cluster, observed, {
    manager,
    workers,
    allocation,
    managers,
    daemonSets,
    statuses,
  });
  const { syncLoop, allSourcesReady } = sources;
  const maintenance = createMaintenance(context, cluster, observed, {
    allocations: allocation.allocations,
    volumes,
    images,
    daemonSets,
    workers,
    syncLoop,
    allSourcesReady,
    disk,
    usages: stats.usages,
  });
  const running: readonly Service[] = [
    statuses,
    ...createNodePodsApi(context),
    createVolumesService({ volumes, waitForTarget, clock, log }),
    probes,
    allocation.allocations.records,
    // Read before the first pod needs it, so that missing cgroup support is logged at the start; if the runtime does not respond now,
    // the first pod retries.
    onceThenIdle("cgroup-layout", async (signal) => void (await layout(signal).catch(() => undefined))),
    cgroups.nodeAllocatable,
    ...daemonSets.services,
    createWorkersService(workers, stop, clock),
    ...sources.running,
    ...maintenance,
    createResizeRetry(context),
    ...stats.services,
  ];
  const timeoutMs = syncLoopTimeout(context.config);
  const isStalled = () => observed.pleg.isStalled(timeoutMs) || syncLoop.isStalled(timeoutMs);
  const syncLoopHealth = () => (isStalled() ? "sync Loop took longer than expected" : undefined);
  return { stats, volumes, manager, syncLoopHealth, running };
}

/** Creates the components that pod workers use. */
function createPodStages(context: NodeContext, cluster: Cluster, observed: ObservedTarget): PodStages {
  const { config, target } = context;
  const statuses = createNodeStatusManager(context);
  const allocation = createPodAllocation(context, cluster, observed);
  const { allocations } = allocation;
  const probes = createNodeProbes(context, cluster, observed);
  const daemonSets = createNodeDaemonSetPolicy(context, cluster);
  const images = createImageRecords(context);
  const volumes = createNodeVolumes(context, cluster, observed);
  cluster.objects.onChange(volumes.objectChanged);
  for (const source of [cluster.trustBundles, cluster.podCertificates]) source.onChange(volumes.sourceChanged);
  const settings = podSettings(config, observed.ownerLabels, target.network, unlimitedCpus(context, observed.cpus));
  const cgroups = createCgroupManagers(context, cluster, observed, { allocations, daemonSets, settings });
  const { groups } = cgroups.hostResources;
  const parts = { allocation, probes, volumes, images, settings, groups };
  const podRuntime = createNodePodRuntime(context, cluster, observed, parts);
  return { statuses, allocation, probes, daemonSets, volumes, images, cgroups, podRuntime };
}

/** Creates the status manager. */
function createNodeStatusManager(context: NodeContext): StatusManager {
  const { client, metrics, clock, log, stateOf, privateColumn, onEnd } = context;
  const { apiPods, worker, status } = stateOf("statusManager");
  return createStatusManager({
    apiPods,
    worker,
    status,
    privateColumn,
    onEnd,
    api: createPodApi(client),
    measures: metrics.measures.statuses,
    clock,
    log,
  });
}

/** Creates the Pods API, with its gate. */
function createNodePodsApi({ config, target, metrics, clock, log, stateOf }: NodeContext): readonly Service[] {
  if (!gateEnabled(config.kubelet.featureGates, "PodsAPI")) return [];
  const { host } = target;
  const { rootDir } = config;
  return [createPodsApi({ ...stateOf("podsApi"), host, rootDir, measures: metrics.measures.podsApi, clock, log })];
}

/** Creates the probes of containers. */
function createNodeProbes(
  { target, metrics, clock, log, stateOf, onEnd }: NodeContext,
  { events }: Cluster,
  { targetClock }: ObservedTarget,
): Probes {
  const { host, runtime, link } = target;
  const { desired, apiPods, podCache, status, starts, signals } = stateOf("probes");
  return createProbes({
    host,
    runtime,
    link,
    pods: desired,
    apiPods,
    cache: podCache,
    status,
    starts,
    signals,
    onEnd,
    targetClock,
    events,
    measures: metrics.measures.probes,
    agentStartedAt: clock.now(),
    clock,
    log,
  });
}

/** Creates the DaemonSet policy: from the configuration if it has a setting, or if pods are on the cluster network. */
function createNodeDaemonSetPolicy({ config, target, log, stateOf }: NodeContext, { nodes }: Cluster): DaemonSetPolicy {
  const { podCache, status } = stateOf("placeholders");
  const setting = config.daemonSets ?? (hasOwnNetwork(target.network) ? undefined : "all");
  return createDaemonSetPolicy({ setting, nodes, cache: podCache, status, rootDir: config.rootDir, log });
}

/** Creates the status generator. */
function createNodeStatusGenerator(
  { config, stateOf }: NodeContext,
  { health, agent, managers }: ObservedTarget,
  { allocation: { allocations }, probes, daemonSets }: PodStages,
): StatusGenerator {
  const { status, starts, resize } = stateOf("statusGenerator");
  return createStatusGenerator({
    status,
    starts,
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

/** A registry that passes pods on to all of the given ones. */
function allOf(registries: readonly ObjectRegistry[]): ObjectRegistry {
  return {
    register: (pod) => registries.forEach((registry) => registry.register(pod)),
    unregister: (uid) => registries.forEach((registry) => registry.unregister(uid)),
  };
}

/** Creates the passes of pod workers. */
function createNodePasses(
  context: NodeContext,
  { events, objects, trustBundles, podCertificates }: Cluster,
  observed: ObservedTarget,
  stages: PodStages,
): Passes {
  const { config, target, client, metrics, clock, log, stateOf, privateColumn } = context;
  const { rights, pleg, health, managers } = observed;
  const { statuses, allocation, probes, daemonSets, volumes, cgroups, podRuntime } = stages;
  const { cpuCFSQuota, syncFrequency } = config.kubelet;
  return createPasses({
    cache: stateOf("passes").podCache,
    privateColumn,
    inspector: pleg,
    runtime: podRuntime,
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
    status: statuses,
    statusOf: createNodeStatusGenerator(context, observed, stages),
    events,
    onRejected: metrics.measures.rejected,
    networkError: health.networkError,
    syncMs: syncFrequency,
    clock,
    log,
  });
}

/** Creates the pod workers. @param stop aborts their passes. */
function createWorkers(
  { metrics, tracer, clock, log, stateOf }: NodeContext,
  { waitForTarget }: ObservedTarget,
  passes: Passes,
  stop: AbortSignal,
): PodWorkers {
  const { worker, signals } = stateOf("podWorkers");
  const measures = metrics.measures.workers;
  return createPodWorkers({ passes, worker, signals, waitForTarget, measures, tracer, stop, clock, log });
}

/** Creates node and pod statistics. */
function createStats(
  { config, target, metrics, clock, log, stateOf }: NodeContext,
  { events }: Cluster,
  { agent, cgroups, targetClock, drivers }: ObservedTarget,
  volumes: Volumes,
  disk: DiskMeter,
): ReturnType<typeof createNodeStats> {
  const { kubelet, nodeName, rootDir } = config;
  const { host, runtime } = target;
  const { facts } = agent;
  const queryHealth = gateEnabled(kubelet.featureGates, "CSIVolumeHealth");
  const { desired, podCache } = stateOf("stats");
  return createNodeStats({
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
    pods: desired,
    cache: podCache,
    disk,
    cgroupVersion: facts.cgroupVersion,
    facts,
    nodeName,
    rootDir,
    podLogsDir: kubelet.podLogsDir,
    diskPeriodMs: kubelet.volumeStatsAggPeriod,
    healthEvents: queryHealth ? events : undefined,
    targetClock,
    clock,
    log,
  });
}
