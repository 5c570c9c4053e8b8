import { createServed } from "../admission/served.ts";
import { deletePod } from "../api/pod-deletion.ts";
import { gateEnabled } from "../config/feature-gates.ts";
import { type DiskMeter, createDiskMeter } from "../host/disk-meter.ts";
import type { Clock } from "../lib/clock.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import { type Service, onAbort, onceThenIdle } from "../lib/service-group.ts";
import type { PodStatus } from "../objects.ts";
import type { PodUpdate, RuntimePod } from "../pipeline.ts";
import { amountsOf } from "../pod/resize.ts";
import { placeholderStatus } from "../pod/placeholder.ts";
import { generateStatus } from "../pod/status.ts";
import { type Probes, createProbes } from "../probes/probes.ts";
import { resizeConditions } from "../resources/resize-states.ts";
import type { AskedPod } from "../roles.ts";
import { isTargetFeature } from "../seams/provider.ts";
import { createDriverSpace } from "../stats/driver-space.ts";
import { type NodeStats, createNodeStats } from "../stats/node-stats.ts";
import { type StatusManager, createStatusManager } from "../status/manager.ts";
import { createMirrorApi, createPodApi } from "../status/pod-api.ts";
import { createMirrorPods } from "../sync/mirror-pods.ts";
import { createPasses } from "../sync/passes.ts";
import { type PodManager, createPodManager } from "../sync/pod-manager.ts";
import { type PodWorkers, createPodWorkers } from "../sync/pod-workers.ts";
import { type SyncLoop, createSyncLoop } from "../sync/sync-loop.ts";
import type { Volumes } from "../volumes/volumes.ts";
import { type Allocating, allocateResources, retryResizes } from "./allocation.ts";
import { cleanUp } from "./cleaning.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import { evictPods } from "./evicting.ts";
import { countRejections, followPods } from "./counts.ts";
import { type Placeholders, choosePods } from "./placeholders.ts";
import { watchShutdown } from "./shutdown.ts";
import { type RuntimeStages, composeRuntime } from "./runtime.ts";
import { composeSources } from "./sources.ts";
import { keptVolumes } from "./volumes.ts";
import { lookAfter } from "./upkeep.ts";
import type { PodUsages } from "../usage.ts";

/** Time for running calls to the runtime to finish when the node stops, milliseconds. */
const drainMs = 20_000;

/** Generates a pod's status from an observation. */
type StatusOf = (pod: AskedPod, seen: RuntimePod, ending: boolean) => PodStatus;

/** The pod pipeline's parts that other components query. */
export interface PodWork {
  readonly stats: NodeStats;
  readonly volumes: Volumes;
  readonly manager: PodManager;
  readonly running: readonly Service[];
}

/** Components that pod workers use. */
interface Stages extends Allocating, RuntimeStages {
  readonly statuses: StatusManager;
  readonly probes: Probes;
  readonly placeholders: Placeholders;
  readonly statusOf: StatusOf;
}

/** Creates the pod pipeline: reads pods from their sources, runs them, reports their status, and cleans up after them. */
export function workOnPods(context: NodeContext, cluster: Cluster, observed: Observed): PodWork {
  const { target, clock } = context;
  const stages = createStages(context, cluster, observed);
  const { statuses, probes, placeholders, volumes, allocations } = stages;
  const { layout } = observed.cgroups;
  const stop = new AbortController();
  const workers = createWorkers(context, cluster, observed, { stages, stop: stop.signal });
  const manager = createPodManager(context.hand("podManager"));
  const disk = createDiskMeter({ host: target.host, clock });
  const stats = createStats(context, cluster, observed, { stages, disk });
  const flow = takeIn(context, cluster, observed, { stages, workers, manager, disk, usages: stats.usages });
  const running: readonly Service[] = [
    statuses,
    keptVolumes(volumes, observed, context),
    probes,
    allocations.records,
    // Read before the first pod needs it, so that missing cgroup support is logged at the start; if the runtime does not respond now,
    // the first pod retries.
    onceThenIdle("cgroup-layout", async (signal) => void (await layout(signal).catch(() => undefined))),
    stages.nodeAllocatable,
    ...placeholders.running,
    { name: "pod-workers", run: (signal) => drain(signal, stop, workers.idle, clock) },
    ...flow,
    ...stats.services,
  ];
  return { stats, volumes, manager, running };
}

/** Creates the components that pod workers use. */
function createStages(context: NodeContext, cluster: Cluster, observed: Observed): Stages {
  const { target, client, metrics, clock, log, hand, onEnd } = context;
  const { measures } = metrics;
  const api = createPodApi(client);
  const { shown, held, ...reported } = hand("statusManager");
  const statuses = createStatusManager({
    ...reported,
    shown,
    held,
    onEnd,
    api,
    measures: measures.statuses,
    clock,
    log,
  });
  const allocating = allocateResources(context, cluster, observed);
  const { asked, seen, shown: apiCopies, ...columns } = hand("probes");
  const probes = createProbes({
    ...target,
    ...columns,
    pods: asked,
    shown: apiCopies,
    cache: seen,
    onEnd,
    targetClock: observed.targetClock,
    events: cluster.events,
    measures: measures.probes,
    agentStartedAt: clock.now(),
    clock,
    log,
  });
  const placeholders = choosePods(context, cluster);
  const statusOf = createStatusOf(context, observed, { ...allocating, probes, placeholders });
  const runtime = composeRuntime(context, cluster, observed, { ...allocating, probes, placeholders });
  cluster.objects.onChange(runtime.volumes.objectChanged);
  return { ...allocating, ...runtime, statuses, probes, placeholders, statusOf };
}

/** Creates the status generator. */
function createStatusOf(
  { config, hand }: NodeContext,
  { health, agent, devices }: Observed,
  { allocations, probes, placeholders }: Pick<Stages, "allocations" | "probes" | "placeholders">,
): StatusOf {
  const { status, starts, resize } = hand("statusGenerator");
  const tellsOfDevices = gateEnabled(config.kubelet.featureGates, "ResourceHealthStatus");
  return (asked, observed, ending) => {
    const { uid } = asked.metadata;
    if (placeholders.standingOf(asked, observed).is === "placeholder") return placeholderStatus(asked, agent.hostIPs());
    const pod = allocations.of(asked);
    return generateStatus({
      pod,
      resize: resizeConditions(resize.get(uid)),
      wholeInForce: pod.spec.resources && allocations.ofPod(pod),
      inForce: (run) => amountsOf(allocations.ofContainer(pod, run)),
      observed,
      ending,
      previous: status.get(uid),
      failures: starts.get(uid)?.failures ?? new Map(),
      readiness: (name, id) => probes.readiness(uid, name, id),
      started: (name, id) => probes.started(uid, name, id),
      ...(tellsOfDevices && { devices: (name: string) => devices.health(uid, name) }),
      hostIPs: agent.hostIPs(),
      runtimeName: health.version()?.runtimeName ?? "",
    });
  };
}

/** Creates the pod workers. @param stop aborts their passes. */
function createWorkers(
  context: NodeContext,
  cluster: Cluster,
  observed: Observed,
  { stages, stop }: { readonly stages: Stages; readonly stop: AbortSignal },
): PodWorkers {
  const { config, target, client, metrics, tracer, clock, log, hand } = context;
  const { presence, rights, pleg, health, managers } = observed;
  const { seen, unseen, worker, signals } = hand("podWorkers");
  const passes = createPasses({
    ...stages,
    cache: seen,
    unseen,
    inspector: pleg,
    runtime: stages.podRuntime,
    objects: cluster.objects,
    prober: stages.probes,
    managers,
    served: createServed(
      async (feature, signal) =>
        isTargetFeature(feature) ? rights.lacks(feature) : target.runtime.lacks?.(feature, signal),
      { cpuCfsQuota: config.kubelet.cpuCFSQuota },
    ),
    standingOf: stages.placeholders.standingOf,
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
  const common = { ...(presence && { presence }), measures, tracer, clock, log, stop };
  return createPodWorkers({ passes, worker, signals, ...common });
}

interface FlowParts {
  readonly stages: Stages;
  readonly workers: PodWorkers;
  readonly manager: PodManager;
  readonly disk: DiskMeter;
  readonly usages: PodUsages;
}

/** Creates pod intake, cleanup, maintenance, eviction and shutdown, in start order. */
function takeIn(
  context: NodeContext,
  cluster: Cluster,
  observed: Observed,
  { stages, workers, manager, ...measuring }: FlowParts,
): readonly Service[] {
  const { config, alone, client, metrics, clock, log, hand } = context;
  const { events, nodes } = cluster;
  const { measures } = metrics;
  const { asked, seen, ...loop } = hand("syncLoop");
  const syncLoop = createSyncLoop({
    ...loop,
    pods: asked,
    cache: seen,
    manager,
    workers,
    admission: countRejections(stages.admission, measures),
    standsFor: stages.placeholders.standsFor,
    resizes: stages.resizes,
    status: stages.statuses,
    events,
    nowText: () => rfc3339(clock.now()),
    log,
  });
  const emit = (update: PodUpdate) => {
    followPods(update, measures);
    syncLoop.push(update);
  };
  const sources = composeSources({
    ...hand("sources"),
    config,
    client: alone ? undefined : client,
    events,
    emit,
    after: nodes.ready,
    clock,
    log,
  });
  const { asked: pods, spoken, ...mirroring } = hand("mirrorPods");
  const sourcesSeen = () => spoken.all() && syncLoop.caughtUp();
  const mirrors = createMirrorPods({
    ...mirroring,
    pods,
    manager,
    api: createMirrorApi(client),
    node: nodes,
    sourcesSeen: () => askedAgain(sourcesSeen(), syncLoop),
    clock,
    log,
  });
  const hasStatic = !alone && spoken.names.some((name) => name !== "api");
  const { running, reclaim } = cleanUp(context, cluster, observed, { ...stages, workers, syncLoop, sourcesSeen });
  return [
    syncLoop,
    ...sources,
    ...(hasStatic ? [mirrors] : []),
    ...running,
    ...lookAfter(context, cluster, observed),
    ...evictPods(context, cluster, observed, { ...stages, ...measuring, reclaim, sourcesSeen }),
    ...watchShutdown(context, cluster, observed, stages.placeholders),
    retryResizes(context),
  ];
}

/** Requests another mirror pod sync if the sources are not known yet. */
function askedAgain(seen: boolean, syncLoop: SyncLoop): boolean {
  if (!seen) syncLoop.oweMirrors();
  return seen;
}

/** Creates node and pod statistics. */
function createStats(
  { config, target, clock, log, hand }: NodeContext,
  { events }: Pick<Cluster, "events">,
  { agent, cgroups, targetClock, drivers }: Observed,
  { stages, disk }: { readonly stages: Stages; readonly disk: DiskMeter },
) {
  const { kubelet, nodeName, rootDir } = config;
  const { facts } = agent;
  const asksHealth = gateEnabled(kubelet.featureGates, "CSIVolumeHealth");
  const { asked, seen } = hand("stats");
  return createNodeStats({
    ...target,
    layout: cgroups.layout,
    volumes: stages.volumes,
    driverSpace: createDriverSpace({ host: target.host, drivers, asksHealth, clock, log }),
    pods: asked,
    cache: seen,
    disk,
    cgroupVersion: facts.cgroupVersion,
    facts,
    nodeName,
    rootDir,
    podLogsDir: kubelet.podLogsDir,
    diskPeriodMs: kubelet.volumeStatsAggPeriod,
    ...(asksHealth && { healthEvents: events }),
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
  await Promise.race([idle(), clock.sleep(drainMs, patience.signal).catch(() => undefined)]);
  patience.abort();
}
