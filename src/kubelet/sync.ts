import { createServed } from "../admission/served.ts";
import { gateEnabled } from "../config/feature-gates.ts";
import { createEviction } from "../eviction/eviction.ts";
import { createGarbage } from "../gc/garbage.ts";
import { createDiskMeter, type DiskMeter } from "../host/disk-meter.ts";
import type { Cluster, KubeletDeps, Observed } from "./kubelet.ts";
import type { AdmissionOf } from "./admission.ts";
import { countOrphans, countRejections, followPods, podView } from "./metrics.ts";
import { type ResizeStages, composeResizes, retryResizes } from "./resizes.ts";
import { type RuntimeStages, composeRuntime } from "./runtime.ts";
import { composeSources } from "./sources.ts";
import { composeStats } from "./stats.ts";
import type { Clock } from "../lib/clock.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import { logLinksDirectory } from "./settings.ts";
import type { Pod, PodStatus } from "../objects.ts";
import type { PodUpdate, RuntimePod, Waker } from "../pipeline.ts";
import { amountsOf } from "../pod/resize.ts";
import { isRestartingAll } from "../pod/restart-all.ts";
import { generateStatus } from "../pod/status.ts";
import { type Probes, createProbes } from "../probes/probes.ts";
import { isTargetFeature } from "../seams/provider.ts";
import { type StatusManager, createStatusManager } from "../status/manager.ts";
import { createMirrorApi, createPodApi } from "../status/pod-api.ts";
import { createHousekeeping, type HousekeepingDeps } from "../sync/housekeeping.ts";
import { createMirrorPods } from "../sync/mirror-pods.ts";
import { createPasses } from "../sync/passes.ts";
import { type PodManager, createPodManager } from "../sync/pod-manager.ts";
import { type PodWorkers, createPodWorkers } from "../sync/pod-workers.ts";
import { createSyncLoop } from "../sync/sync-loop.ts";

/** How long a stopping node waits for calls to the runtime that are under way, milliseconds. */
const drainMs = 20_000;

/** A pod's status from what the runtime shows of it. */
type StatusOf = (pod: Pod, seen: RuntimePod, ending: boolean) => PodStatus;

/** What the stages of one pod's work have in common. */
interface Stages extends RuntimeStages, ResizeStages {
  readonly pods: PodManager;
  readonly statuses: StatusManager;
  readonly probes: Probes;
  readonly statusOf: StatusOf;
  readonly disk: DiskMeter;
}

/** What is built of the stages after them. */
interface Later extends AdmissionOf {
  readonly mayRun: (uid: string) => boolean;
  readonly sourcesSpoke: () => boolean;
  readonly onFreed: () => void;
}

/** What becomes of pods: sources, admission, workers, status, and what cleans up after them. */
export function composeSync(deps: KubeletDeps, cluster: Cluster, observed: Observed, waker: Waker) {
  const { clock, log, metrics } = deps;
  const { measures } = metrics;
  const stop = new AbortController();
  const stages = composeStages(deps, cluster, observed, waker, {
    mayRun: (uid) => mayRun(workers.get(uid)?.phase),
    preemptor: { preempt: (uid, why) => workers.preempt(uid, why) },
    takenIn: () => flow.takenIn(),
    sourcesSpoke: () => flow.sourcesSpoke(),
    onFreed: () => flow.decideResizes("pod_resized"),
  });
  const { pods, statuses, probes, volumes } = stages;
  cluster.objects.onChange(volumes.objectChanged);
  const passes = createPasses({
    ...stages,
    cache: observed.pleg.cache,
    inspector: observed.pleg,
    runtime: stages.podRuntime,
    objects: cluster.objects,
    prober: probes,
    served: createServed(async (feature, signal) =>
      isTargetFeature(feature) ? observed.rights.lacks(feature) : deps.target.runtime.lacks?.(feature, signal),
    ),
    status: statuses,
    events: cluster.events,
    networkError: observed.health.networkError,
    syncMs: deps.config.kubelet.syncFrequency,
    clock,
    log,
  });
  const { presence } = observed;
  const workers = createPodWorkers({
    passes,
    ...(presence && { presence }),
    measures: measures.workers,
    finished: () => flow.mirrors.changed(),
    clock,
    log,
    stop: stop.signal,
  });
  const draining: Service = { name: "pod-workers", run: (signal) => drain(signal, stop, workers.idle, clock) };
  const stoppingVolumes: Service = { name: "volumes", run: async (signal) => onAbort(signal).then(volumes.stop) };
  const flow = composeFlow(deps, cluster, observed, stages, workers);
  const stats = composeStats(deps, observed, stages);
  const { allocations } = stages;
  const before: readonly Service[] = [
    statuses,
    stoppingVolumes,
    probes,
    allocations.records,
    foundLayout(stages.layout),
    draining,
  ];
  const running: readonly Service[] = [...before, ...flow.running, ...stats.services];
  const view = podView({ pods, cache: observed.pleg.cache, workers, volumes, resizes: stages.resizes });
  return { pods, podsKnown: flow.podsKnown, statuses, workers, stats, view, running };
}

/** What a pod worker works with. */
function composeStages(deps: KubeletDeps, cluster: Cluster, observed: Observed, waker: Waker, later: Later): Stages {
  const { target, client, metrics, clock, log } = deps;
  const { measures } = metrics;
  const { pleg } = observed;
  const pods = createPodManager();
  const statuses = createStatusManager({
    api: createPodApi(client),
    pods: { get: pods.shown },
    mayRun: later.mayRun,
    measures: measures.statuses,
    clock,
    log,
  });
  const given = composeResizes(deps, cluster, observed, { ...later, pods });
  const { allocations } = given;
  const stages = composeRuntime({
    ...deps,
    ...cluster,
    ...observed,
    measures,
    pods,
    allocations,
    probes: {
      condemnedBy: (uid, name, id) => probes.condemnedBy(uid, name, id),
      started: (uid, name, id) => probes.started(uid, name, id),
    },
    isRestartingAll: (uid) => isRestartingAll(statuses.get(uid)),
  });
  const probes: Probes = createProbes({
    ...target,
    clock,
    targetClock: observed.targetClock,
    log,
    events: cluster.events,
    cache: pleg.cache,
    pods,
    status: statuses,
    isStarting: stages.podRuntime.isStarting,
    waker,
    measures: measures.probes,
    agentStartedAt: clock.now(),
  });
  const statusOf = createStatusOf(deps, observed, { ...given, ...stages, statuses, probes });
  const disk = createDiskMeter({ host: target.host, clock });
  return { ...stages, pods, statuses, probes, statusOf, disk, ...given };
}

/** What a pod's status is worked out from. */
function createStatusOf(
  { config }: KubeletDeps,
  { health, agent, devices }: Observed,
  { allocations, resizes, statuses, probes, podRuntime }: Omit<Stages, "pods" | "statusOf" | "disk">,
): StatusOf {
  const tellsOfDevices = gateEnabled(config.kubelet.featureGates, "ResourceHealthStatus");
  return (asked, seen, ending) => {
    const { uid } = asked.metadata;
    const pod = allocations.of(asked);
    return generateStatus({
      pod,
      resize: resizes.conditions(uid),
      wholeInForce: pod.spec.resources && allocations.ofPod(pod),
      inForce: (run) => amountsOf(allocations.ofContainer(pod, run)),
      observed: seen,
      ending,
      previous: statuses.get(uid),
      failures: podRuntime.failures(uid),
      readiness: (name, id) => probes.readiness(uid, name, id),
      started: (name, id) => probes.started(uid, name, id),
      ...(tellsOfDevices && { devices: (name: string) => devices.health(uid, name) }),
      hostIPs: agent.hostIPs(),
      runtimeName: health.version()?.runtimeName ?? "",
    });
  };
}

/** What brings pods in and clears away what they leave, in the order in which it starts. */
function composeFlow(deps: KubeletDeps, cluster: Cluster, observed: Observed, stages: Stages, workers: PodWorkers) {
  const { config, alone, client, metrics, clock, log } = deps;
  const { events, nodes } = cluster;
  const { pleg, presence } = observed;
  const { pods, statuses, resizes } = stages;
  const common = { clock, log, ...(presence && { presence }) };
  const cache = pleg.cache;
  const { measures } = metrics;
  const admission = countRejections(stages.admission, measures);
  const nowText = () => rfc3339(clock.now());
  const mirrorsChanged = () => mirrors.changed();
  const syncLoop = createSyncLoop({
    pods,
    workers,
    cache,
    admission,
    resizes,
    status: statuses,
    events,
    mirrorsChanged,
    nowText,
    log,
  });
  const emit = (update: PodUpdate) => {
    followPods(update, measures);
    syncLoop.push(update);
  };
  const sources = composeSources({
    config,
    client: alone ? undefined : client,
    cache,
    events,
    emit,
    after: nodes.ready,
    clock,
    log,
  });
  const sourcesSeen = () => sources.allSeen() && syncLoop.caughtUp();
  const mirrors = createMirrorPods({
    ...common,
    api: createMirrorApi(client),
    pods,
    workers,
    node: nodes,
    sourcesSeen() {
      const seen = sourcesSeen();
      if (!seen) syncLoop.oweMirrors();
      return seen;
    },
  });
  const cleaning = composeCleaning(deps, cluster, observed, stages, {
    sources: sources.names,
    sourcesSeen,
    waits: syncLoop.waits,
    resume: syncLoop.resume,
    workers,
  });
  nodes.onChange(mirrors.changed);
  const mirroring = !alone && sources.names.some((name) => name !== "api") ? [mirrors] : [];
  const { decideResizes } = syncLoop;
  const retrying = retryResizes(decideResizes, clock);
  const running: readonly Service[] = [syncLoop, ...sources.running, ...mirroring, ...cleaning, retrying];
  const takenIn = () => sources.names.every(syncLoop.hasTakenIn);
  const podsKnown = syncLoop.untilTakenIn(sources.names);
  return { running, takenIn, podsKnown, sourcesSpoke: sources.allSeen, decideResizes, mirrors };
}

/** What finds and clears away what pods leave, and ends those that take too much. */
function composeCleaning(
  { config, target, metrics, clock, log }: KubeletDeps,
  { events }: Cluster,
  { pleg, presence }: Observed,
  { pods, statuses, probes, volumes, podRuntime, disk, resizes }: Stages,
  flow: Pick<HousekeepingDeps, "sources" | "sourcesSeen" | "waits" | "resume" | "workers">,
): readonly Service[] {
  const { kubelet, rootDir } = config;
  const { workers } = flow;
  const common = { clock, log, ...(presence && { presence }) };
  const { cache } = pleg;
  const garbage = createGarbage({
    ...common,
    runtime: target.runtime,
    fs: target.host.fs,
    cache,
    inspector: pleg,
    podLogsDir: kubelet.podLogsDir,
    containerLogsDir: logLinksDirectory,
  });
  const housekeeping = createHousekeeping({
    ...common,
    pods,
    ...flow,
    workers: countOrphans(workers, cache, metrics.measures),
    cache,
    directories: volumes.podDirectories,
    forgetExcept(known) {
      probes.collect(known);
      resizes.forgetExcept(known);
    },
    async sweep(uid, countsOn, signal) {
      if (!countsOn) await garbage.podGone(uid, signal);
      await volumes.removePodDirectory(uid, signal);
      podRuntime.forget(uid);
      statuses.forget(uid);
      resizes.forget(uid);
    },
  });
  const { host, runtime } = target;
  const { podLogsDir } = kubelet;
  const eviction = createEviction({
    ...common,
    host,
    disk,
    runtime,
    volumes,
    rootDir,
    podLogsDir,
    pods,
    evictor: workers,
    events,
    measures: metrics.measures.evictions,
  });
  const evicting = kubelet.localStorageCapacityIsolation ? [eviction] : [];
  return [housekeeping, garbage, ...evicting];
}

/** Asks where cgroups lie before the first pod does, so that the log says at the start what pods lack there. A runtime that does not
 *  answer now is asked by the pod. */
function foundLayout(layout: Stages["layout"]): Service {
  return {
    name: "cgroup-layout",
    async run(signal) {
      await layout(signal).catch(() => undefined);
      await onAbort(signal);
    },
  };
}

/** A worker that has not taken its pod down yet may have containers running. */
function mayRun(phase: string | undefined): boolean {
  return phase === "syncing" || phase === "terminating";
}

/** Ends the workers' passes and waits for calls to the runtime that must not be cut off. */
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
