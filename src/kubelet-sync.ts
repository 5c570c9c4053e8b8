import { createAdmission } from "./admission/chain.ts";
import { createPreemption } from "./admission/preemption.ts";
import { createServed } from "./admission/served.ts";
import { createEviction } from "./eviction/eviction.ts";
import { createGarbage } from "./gc/garbage.ts";
import { createDiskMeter, type DiskMeter } from "./host/disk-meter.ts";
import type { Cluster, KubeletDeps, Observed } from "./kubelet.ts";
import { countOrphans, countRejections, followPods, podView } from "./kubelet-metrics.ts";
import { type RuntimeStages, composeRuntime } from "./kubelet-runtime.ts";
import { composeSources } from "./kubelet-sources.ts";
import { composeStats } from "./kubelet-stats.ts";
import type { Clock } from "./lib/clock.ts";
import { rfc3339 } from "./lib/rfc3339.ts";
import { type Service, onAbort } from "./lib/service-group.ts";
import { logLinksDirectory } from "./node-setup.ts";
import type { Node, Pod, PodStatus } from "./objects.ts";
import type { PodUpdate, RuntimePod, Waker } from "./pipeline.ts";
import { isRestartingAll } from "./pod/restart-all.ts";
import { generateStatus } from "./pod/status.ts";
import { type Probes, createProbes } from "./probes/probes.ts";
import { isTargetFeature } from "./seams/provider.ts";
import { type StatusManager, createStatusManager } from "./status/manager.ts";
import { createMirrorApi, createPodApi } from "./status/pod-api.ts";
import { createHousekeeping, type HousekeepingDeps } from "./sync/housekeeping.ts";
import { type MirrorPods, createMirrorPods } from "./sync/mirror-pods.ts";
import { createPasses } from "./sync/passes.ts";
import { type PodManager, createPodManager } from "./sync/pod-manager.ts";
import { type PodWorkers, createPodWorkers } from "./sync/pod-workers.ts";
import { createSyncLoop } from "./sync/sync-loop.ts";

/** How long a stopping node waits for calls to the runtime that are under way, milliseconds. */
const drainMs = 20_000;

/** A pod's status from what the runtime shows of it. */
type StatusOf = (pod: Pod, seen: RuntimePod, ending: boolean) => PodStatus;

/** What the stages of one pod's work have in common. */
interface Stages extends RuntimeStages {
  readonly pods: PodManager;
  readonly statuses: StatusManager;
  readonly probes: Probes;
  readonly statusOf: StatusOf;
  readonly disk: DiskMeter;
}

/** What becomes of pods: sources, admission, workers, status, and what cleans up after them. */
export function composeSync(deps: KubeletDeps, cluster: Cluster, observed: Observed, waker: Waker) {
  const { clock, log, metrics } = deps;
  const { measures } = metrics;
  const stop = new AbortController();
  const stages = composeStages(deps, cluster, observed, waker, (uid) => mayRun(workers.get(uid)?.phase));
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
  const running: readonly Service[] = [statuses, stoppingVolumes, probes, draining, ...flow.running, ...stats.services];
  const view = podView({ pods, cache: observed.pleg.cache, workers, volumes });
  return { pods, statuses, workers, stats, view, running };
}

/** What a pod worker works with. */
function composeStages(
  deps: KubeletDeps,
  cluster: Cluster,
  observed: Observed,
  waker: Waker,
  mayRunNow: (uid: string) => boolean,
): Stages {
  const { target, client, metrics, clock, log } = deps;
  const { measures } = metrics;
  const { pleg, health, agent } = observed;
  const pods = createPodManager();
  const statuses = createStatusManager({
    api: createPodApi(client),
    pods: { get: pods.shown },
    mayRun: mayRunNow,
    measures: measures.statuses,
    clock,
    log,
  });
  const onSandboxReady = async ({ metadata: { uid } }: Pod, seen: RuntimePod | undefined) => {
    if (seen) pleg.learn(seen);
    const now = seen ?? (await pleg.inspect(uid, new AbortController().signal));
    const pod = pods.get(uid);
    if (pod) statuses.set(pod, statusOf(pod, now, false));
  };
  const stages = composeRuntime({
    ...deps,
    ...cluster,
    ...observed,
    measures,
    pods,
    onSandboxReady,
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
  const statusOf: StatusOf = (pod, seen, ending) => {
    const { uid } = pod.metadata;
    return generateStatus({
      pod,
      observed: seen,
      ending,
      previous: statuses.get(uid),
      failures: stages.podRuntime.failures(uid),
      readiness: (name, id) => probes.readiness(uid, name, id),
      started: (name, id) => probes.started(uid, name, id),
      hostIPs: agent.hostIPs(),
      runtimeName: health.version()?.runtimeName ?? "",
    });
  };
  return { ...stages, pods, statuses, probes, statusOf, disk: createDiskMeter({ host: target.host, clock }) };
}

/** What brings pods in and clears away what they leave, in the order in which it starts. */
function composeFlow(
  deps: KubeletDeps,
  cluster: Cluster,
  observed: Observed,
  stages: Stages,
  workers: PodWorkers,
): { readonly running: readonly Service[]; readonly mirrors: MirrorPods } {
  const { config, alone, client, metrics, clock, log } = deps;
  const { events, nodes } = cluster;
  const { pleg, agent, presence } = observed;
  const { pods, statuses } = stages;
  const { nodeName, kubelet } = config;
  const common = { clock, log, ...(presence && { presence }) };
  const cache = pleg.cache;
  const freshNode = (signal: AbortSignal) => client.get<Node>(`/api/v1/nodes/${nodeName}`, { signal });
  const { measures } = metrics;
  const makeRoom = createPreemption({ preemptor: workers, events, measures, clock, log });
  const admission = countRejections(
    createAdmission({ ...kubelet, ...agent, node: nodes, freshNode, makeRoom, log }),
    measures,
  );
  const nowText = () => rfc3339(clock.now());
  const mirrorsChanged = () => mirrors.changed();
  const syncLoop = createSyncLoop({
    pods,
    workers,
    cache,
    admission,
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
    sourcesSeen,
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
  return { running: [syncLoop, ...sources.running, ...mirroring, ...cleaning], mirrors };
}

/** What finds and clears away what pods leave, and ends those that take too much. */
function composeCleaning(
  { config, target, metrics, clock, log }: KubeletDeps,
  { events }: Cluster,
  { pleg, presence }: Observed,
  { pods, statuses, probes, volumes, podRuntime, disk }: Stages,
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
    forgetExcept: probes.collect,
    async sweep(uid, countsOn, signal) {
      if (!countsOn) await garbage.podGone(uid, signal);
      await volumes.removePodDirectory(uid, signal);
      podRuntime.forget(uid);
      statuses.forget(uid);
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
