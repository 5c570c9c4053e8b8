import { createFieldChecker } from "../admission/field-checker.ts";
import { deletePod } from "../api/pod-deletion.ts";
import { gateEnabled } from "../config/feature-gates.ts";
import { type DiskMeter, createDiskMeter } from "../host/disk-meter.ts";
import type { Clock } from "../lib/clock.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import { type Service, onAbort, onceThenIdle } from "../lib/service-group.ts";
import type { PodStatus } from "../objects.ts";
import type { PodUpdate, RuntimePod } from "../pipeline.ts";
import { amountsOf } from "../pod/pod-resources.ts";
import { placeholderStatus } from "../pod/placeholder.ts";
import { generateStatus } from "../status/generate/generate-status.ts";
import { type Probes, createProbes } from "../probes/probes.ts";
import { resizeConditions } from "../allocation/resize-states.ts";
import type { PodUsages } from "../eviction/ports.ts";
import type { DesiredPod } from "../roles.ts";
import { isTargetFeature } from "../seams/provider.ts";
import { createDriverVolumeStats } from "../stats/driver-volume-stats.ts";
import { type NodeStats, createNodeStats } from "../stats/node-stats.ts";
import { type StatusManager, createStatusManager } from "../status/manager.ts";
import { createMirrorApi, createPodApi } from "../status/pod-api.ts";
import { createMirrorPods } from "../sync/mirror-pods.ts";
import { createPasses } from "../sync/passes.ts";
import { type PodManager, createPodManager } from "../sync/pod-manager.ts";
import { type PodWorkers, createPodWorkers } from "../sync/pod-workers.ts";
import { type SyncLoop, createSyncLoop } from "../sync/sync-loop.ts";
import type { Volumes } from "../volumes/volumes.ts";
import { type AllocationStages, createAllocationStages, createResizeRetry } from "./allocation.ts";
import { createCleanup } from "./cleanup.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { createEvictionManager } from "./eviction.ts";
import { countRejections, countPods } from "./pod-counters.ts";
import { type Placeholders, createPlaceholders } from "./placeholders.ts";
import { watchShutdown } from "./shutdown.ts";
import { type RuntimeStages, createRuntimeStages } from "./runtime.ts";
import { composeSources } from "./sources.ts";
import { volumesService } from "./volumes.ts";
import { createMaintenance } from "./maintenance.ts";

/** Time for running calls to the runtime to finish when the node stops, milliseconds. */
const drainTimeoutMs = 20_000;

/** Generates a pod's status from an observation. */
type StatusGenerator = (pod: DesiredPod, seen: RuntimePod, ending: boolean) => PodStatus;

/** The pod pipeline's parts that other components query. */
export interface PodPipeline {
  readonly stats: NodeStats;
  readonly volumes: Volumes;
  readonly manager: PodManager;
  readonly running: readonly Service[];
}

/** Components that pod workers use. */
interface PodStages extends AllocationStages, RuntimeStages {
  readonly statuses: StatusManager;
  readonly probes: Probes;
  readonly placeholders: Placeholders;
  readonly statusOf: StatusGenerator;
}

/** Creates the pod pipeline: reads pods from their sources, runs them, reports their status, and cleans up after them. */
export function createPodPipeline(context: NodeContext, cluster: Cluster, observed: ObservedTarget): PodPipeline {
  const { target, clock } = context;
  const stages = createPodStages(context, cluster, observed);
  const { statuses, probes, placeholders, volumes, allocations } = stages;
  const { layout } = observed.cgroups;
  const stop = new AbortController();
  const workers = createWorkers(context, cluster, observed, { stages, stop: stop.signal });
  const manager = createPodManager(context.hand("podManager"));
  const disk = createDiskMeter({ host: target.host, clock });
  const stats = createStats(context, cluster, observed, { stages, disk });
  const intake = createPodIntake(context, cluster, observed, { stages, workers, manager, disk, usages: stats.usages });
  const running: readonly Service[] = [
    statuses,
    volumesService(volumes, observed, context),
    probes,
    allocations.records,
    // Read before the first pod needs it, so that missing cgroup support is logged at the start; if the runtime does not respond now,
    // the first pod retries.
    onceThenIdle("cgroup-layout", async (signal) => void (await layout(signal).catch(() => undefined))),
    stages.nodeAllocatable,
    ...placeholders.running,
    { name: "pod-workers", run: (signal) => drain(signal, stop, workers.idle, clock) },
    ...intake,
    ...stats.services,
  ];
  return { stats, volumes, manager, running };
}

/** Creates the components that pod workers use. */
function createPodStages(context: NodeContext, cluster: Cluster, observed: ObservedTarget): PodStages {
  const { target, client, metrics, clock, log, hand, privateColumn, onEnd } = context;
  const { measures } = metrics;
  const api = createPodApi(client);
  const statuses = createStatusManager({
    ...hand("statusManager"),
    privateColumn,
    onEnd,
    api,
    measures: measures.statuses,
    clock,
    log,
  });
  const allocating = createAllocationStages(context, cluster, observed);
  const { desired, podCache, ...columns } = hand("probes");
  const probes = createProbes({
    ...target,
    ...columns,
    pods: desired,
    cache: podCache,
    onEnd,
    targetClock: observed.targetClock,
    events: cluster.events,
    measures: measures.probes,
    agentStartedAt: clock.now(),
    clock,
    log,
  });
  const placeholders = createPlaceholders(context, cluster);
  const statusOf = createStatusGenerator(context, observed, { ...allocating, probes, placeholders });
  const runtime = createRuntimeStages(context, cluster, observed, { ...allocating, probes, placeholders });
  cluster.objects.onChange(runtime.volumes.objectChanged);
  return { ...allocating, ...runtime, statuses, probes, placeholders, statusOf };
}

/** Creates the status generator. */
function createStatusGenerator(
  { config, hand }: NodeContext,
  { health, agent, devices }: ObservedTarget,
  { allocations, probes, placeholders }: Pick<PodStages, "allocations" | "probes" | "placeholders">,
): StatusGenerator {
  const { status, starts, resize } = hand("statusGenerator");
  const reportsDeviceHealth = gateEnabled(config.kubelet.featureGates, "ResourceHealthStatus");
  return (desired, observed, isTerminating) => {
    const { uid } = desired.metadata;
    if (placeholders.daemonSetDecision(desired, observed).kind === "placeholder")
      return placeholderStatus(desired, agent.hostIPs());
    const pod = allocations.allocatedPod(desired);
    return generateStatus({
      pod,
      resize: resizeConditions(resize.get(uid)),
      actualPodResources: pod.spec.resources && allocations.podResources(pod),
      actualResources: (run) => amountsOf(allocations.containerResources(pod, run)),
      observed,
      isTerminating,
      previous: status.get(uid),
      failures: starts.get(uid)?.failures ?? new Map(),
      readiness: (name, id) => probes.readiness(uid, name, id),
      started: (name, id) => probes.started(uid, name, id),
      ...(reportsDeviceHealth && { devices: (name: string) => devices.health(uid, name) }),
      hostIPs: agent.hostIPs(),
      runtimeName: health.version()?.runtimeName ?? "",
    });
  };
}

/** Creates the pod workers. @param stop aborts their passes. */
function createWorkers(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
  { stages, stop }: { readonly stages: PodStages; readonly stop: AbortSignal },
): PodWorkers {
  const { config, target, client, metrics, tracer, clock, log, hand, privateColumn } = context;
  const { waitForTarget, rights, pleg, health, managers } = observed;
  const { podCache, worker, signals } = hand("podWorkers");
  const passes = createPasses({
    ...stages,
    cache: podCache,
    privateColumn,
    inspector: pleg,
    runtime: stages.podRuntime,
    objects: cluster.objects,
    prober: stages.probes,
    managers,
    fieldChecker: createFieldChecker(
      async (feature, signal) =>
        isTargetFeature(feature) ? rights.lacks(feature) : target.runtime.unsupportedReason?.(feature, signal),
      { cpuCfsQuota: config.kubelet.cpuCFSQuota },
    ),
    daemonSetDecision: stages.placeholders.daemonSetDecision,
    deletePod: (pod, until) => deletePod(client, pod, {}, until),
    status: stages.statuses,
    events: cluster.events,
    onRejected: metrics.measures.rejected,
    networkError: health.networkError,
    syncMs: config.kubelet.syncFrequency,
    clock,
    log,
  });
  const { workers: measures } = metrics.measures;
  const common = { ...(waitForTarget && { waitForTarget }), measures, tracer, clock, log, stop };
  return createPodWorkers({ passes, worker, signals, ...common });
}

interface IntakeParts {
  readonly stages: PodStages;
  readonly workers: PodWorkers;
  readonly manager: PodManager;
  readonly disk: DiskMeter;
  readonly usages: PodUsages;
}

/** Creates pod intake, cleanup, maintenance, eviction and shutdown, in start order. */
function createPodIntake(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
  { stages, workers, manager, ...measuring }: IntakeParts,
): readonly Service[] {
  const { config, standalone, client, metrics, clock, log, hand } = context;
  const { events, nodes } = cluster;
  const { measures } = metrics;
  const { desired, podCache, ...loop } = hand("syncLoop");
  const syncLoop = createSyncLoop({
    ...loop,
    pods: desired,
    cache: podCache,
    manager,
    workers,
    admission: countRejections(stages.admission, measures),
    isPlaceholder: stages.placeholders.isPlaceholder,
    managers: observed.managers,
    resizes: stages.resizes,
    status: stages.statuses,
    events,
    nowText: () => rfc3339(clock.now()),
    log,
  });
  const emit = (update: PodUpdate) => {
    countPods(update, measures);
    syncLoop.push(update);
  };
  const sources = composeSources({
    ...hand("sources"),
    config,
    client: standalone ? undefined : client,
    events,
    emit,
    after: nodes.ready,
    clock,
    log,
  });
  const { desired: pods, sourcesReady, ...mirroring } = hand("mirrorPods");
  const sourcesSeen = () => sourcesReady.all() && syncLoop.isIdle();
  const mirrors = createMirrorPods({
    ...mirroring,
    pods,
    manager,
    api: createMirrorApi(client),
    node: nodes,
    sourcesSeen: () => requeueUnlessSeen(sourcesSeen(), syncLoop),
    clock,
    log,
  });
  const hasStatic = !standalone && sourcesReady.names.some((name) => name !== "api");
  const { running, reclaim } = createCleanup(context, cluster, observed, { ...stages, workers, syncLoop, sourcesSeen });
  return [
    syncLoop,
    ...sources,
    ...(hasStatic ? [mirrors] : []),
    ...running,
    ...createMaintenance(context, cluster, observed),
    ...createEvictionManager(context, cluster, observed, { ...stages, ...measuring, reclaim, sourcesSeen }),
    ...watchShutdown(context, cluster, observed, stages.placeholders),
    createResizeRetry(context),
  ];
}

/** Requests another mirror pod sync if the sources are not known yet. */
function requeueUnlessSeen(seen: boolean, syncLoop: SyncLoop): boolean {
  if (!seen) syncLoop.requeueMirrorSync();
  return seen;
}

/** Creates node and pod statistics. */
function createStats(
  { config, target, clock, log, hand }: NodeContext,
  { events }: Pick<Cluster, "events">,
  { agent, cgroups, targetClock, drivers }: ObservedTarget,
  { stages, disk }: { readonly stages: PodStages; readonly disk: DiskMeter },
) {
  const { kubelet, nodeName, rootDir } = config;
  const { facts } = agent;
  const queryHealth = gateEnabled(kubelet.featureGates, "CSIVolumeHealth");
  const { desired, podCache } = hand("stats");
  return createNodeStats({
    ...target,
    layout: cgroups.layout,
    volumes: stages.volumes,
    driverVolumeStats: createDriverVolumeStats({ host: target.host, drivers, queryHealth, clock, log }),
    pods: desired,
    cache: podCache,
    disk,
    cgroupVersion: facts.cgroupVersion,
    facts,
    nodeName,
    rootDir,
    podLogsDir: kubelet.podLogsDir,
    diskPeriodMs: kubelet.volumeStatsAggPeriod,
    ...(queryHealth && { healthEvents: events }),
    targetClock,
    clock,
    log,
  });
}

/** Aborts the workers' passes and waits for calls to the runtime that must not be interrupted. */
async function drain(
  signal: AbortSignal,
  workers: AbortController,
  idle: () => Promise<void>,
  clock: Clock,
): Promise<void> {
  await onAbort(signal);
  workers.abort();
  const patience = new AbortController();
  await Promise.race([idle(), clock.sleep(drainTimeoutMs, patience.signal).catch(() => undefined)]);
  patience.abort();
}
