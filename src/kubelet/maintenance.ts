import { createEvict } from "../eviction/evict.ts";
import { createLocalLimits } from "../eviction/local-limits.ts";
import { createEviction } from "../eviction/manager.ts";
import { memoryBounds } from "../eviction/memory-bounds.ts";
import { createMemoryNotifier } from "../eviction/memory-notifier.ts";
import { createNodePressure } from "../eviction/node-pressure.ts";
import { createObserver } from "../eviction/observer.ts";
import { type ContainerCollection, createContainerCollection } from "../gc/container-collection.ts";
import { createImageCollection } from "../gc/image-collection.ts";
import type { DiskMeter } from "../host/disk-meter.ts";
import { type Runnable, onceThenIdle } from "../lib/runnables.ts";
import { createLogRotation } from "../logs/rotation.ts";
import { createOomWatcher, setOwnOomScore } from "../node/oom-watcher.ts";
import { checkResolvConf } from "../node/resolv-conf-check.ts";
import type { PodUsages, Reclaim } from "../eviction/ports.ts";
import { isTerminal } from "../pod/phase.ts";
import { createShutdownManager } from "../shutdown/shutdown.ts";
import { createHousekeeping } from "../sync/housekeeping.ts";
import type { PodWorkers } from "../sync/pod-workers.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { PodStages } from "./runtime.ts";
import type { PodSources } from "./sources.ts";
import { evictionSettings, imageLimits, logLinksDirectory, rotationSettings, shutdownSettings } from "./settings.ts";

/** Dependencies of the maintenance of a node's pods. */
export interface MaintenanceParts extends PodStages, PodSources {
  readonly workers: PodWorkers;
  readonly disk: DiskMeter;
  readonly usages: PodUsages;
}

/** The maintenance services of a node. */
export interface Maintenance {
  /** The eviction manager. It starts before the pods are known: the node is not Ready before its disks and memory have been measured, and nothing
   *  is evicted before all pod sources have reported or timed out. */
  readonly eviction: readonly Runnable[];
  /** In start order: housekeeping, garbage collection, the OOM watcher, log rotation, graceful shutdown. */
  readonly running: readonly Runnable[];
}

/** Creates the maintenance services of a node. */
export function createMaintenance(
  context: NodeContext,
  cluster: Cluster,
  observed: ObservedTarget,
  parts: MaintenanceParts,
): Maintenance {
  const { garbage, reclaim, runnables } = createGarbageCollection(context, cluster, observed, parts);
  return {
    eviction: createEvictionManager(context, cluster, observed, parts, reclaim),
    running: [
      createNodeHousekeeping(context, observed, parts, garbage),
      ...runnables,
      ...createTargetUpkeep(context, cluster, observed),
      ...createShutdown(context, cluster, observed, parts),
    ],
  };
}

function createNodeHousekeeping(
  { metrics, partsOf }: NodeContext,
  { waitForTarget }: ObservedTarget,
  { allocation, volumes, workers, syncLoop, allSourcesReady }: MaintenanceParts,
  garbage: ContainerCollection,
): Runnable {
  return createHousekeeping({
    ...partsOf("housekeeping"),
    workers,
    allSourcesReady,
    isWaiting: syncLoop.isWaiting,
    resumeWaiting: syncLoop.resumeWaiting,
    directories: volumes.podDirectories,
    pruneRecords: allocation.allocations.pruneRecords,
    async cleanUpPod(uid, keepsContainers, signal) {
      if (!keepsContainers) await garbage.removePodLeftovers(uid, signal);
      await volumes.removePodDirectory(uid, signal);
    },
    waitForTarget,
    measures: metrics.measures,
  });
}

/** Creates garbage collection of containers and images. */
function createGarbageCollection(
  { config, target, metrics, tracer, partsOf }: NodeContext,
  { events }: Cluster,
  { waitForTarget, pleg, ownerLabels, targetClock }: ObservedTarget,
  { images, allSourcesReady }: MaintenanceParts,
): { readonly garbage: ContainerCollection; readonly reclaim: Reclaim; readonly runnables: readonly Runnable[] } {
  const { host, runtime } = target;
  const { kubelet, nodeName } = config;
  const garbage = createContainerCollection({
    ...partsOf("garbage"),
    runtime,
    fs: host.fs,
    inspector: pleg,
    allSourcesReady,
    ownerLabels,
    podLogsDir: kubelet.podLogsDir,
    containerLogsDir: logLinksDirectory,
    limits: config.deadContainers,
    nodeName,
    events,
    targetClock,
    waitForTarget,
    tracer,
  });
  const imageCollection = createImageCollection({
    ...partsOf("imageCollection"),
    runtime,
    fs: host.fs,
    pulled: images.pulled,
    prunePulls: images.pullManager?.prune,
    limits: imageLimits(kubelet),
    nodeName,
    events,
    waitForTarget,
    measures: metrics.measures.imageRemovals,
    tracer,
  });
  const { deleteUnusedContainers } = garbage;
  const { deleteUnusedImages } = imageCollection;
  return { garbage, reclaim: { deleteUnusedContainers, deleteUnusedImages }, runnables: [garbage, imageCollection] };
}

/** Creates the OOM watcher and log rotation, checks the target's resolver file once, and sets graftlet's own oom_score_adj if it runs on
 *  the target. */
function createTargetUpkeep(
  { config, target, clock, log, partsOf }: NodeContext,
  { events }: Cluster,
  { waitForTarget }: ObservedTarget,
): readonly Runnable[] {
  const { kubelet, nodeName } = config;
  const { host, runtime, link } = target;
  const settings = rotationSettings(config);
  const rotation = createLogRotation({ ...partsOf("logRotation"), runtime, host, settings, waitForTarget });
  const oom = createOomWatcher({ host, nodeName, events, waitForTarget, clock, log });
  const score = onceThenIdle("oom-score", () => setOwnOomScore(kubelet.oomScoreAdj, log));
  const { resolvConf, clusterDomain } = kubelet;
  const check = { fs: host.fs, nodeName, resolvConf, clusterDomain, events };
  const resolver = onceThenIdle("resolv-conf", (signal) => checkResolvConf(check, signal));
  return [oom, resolver, ...(settings.maxSizeBytes < 0 ? [] : [rotation]), ...(link ? [] : [score])];
}

function createEvictionManager(
  { config, target, metrics, partsOf, onEnd }: NodeContext,
  { events }: Cluster,
  { waitForTarget, agent: { facts }, cgroups }: ObservedTarget,
  { allocation, volumes, daemonSets, allSourcesReady, disk, usages }: MaintenanceParts,
  reclaim: Reclaim,
): readonly Runnable[] {
  const { kubelet, nodeName, rootDir } = config;
  const { host, runtime } = target;
  const { podLogsDir } = kubelet;
  const parts = partsOf("eviction");
  const { desired, clock, log } = parts;
  const { evictions: measures } = metrics.measures;
  const { cgroupVersion, maxPid } = facts;
  const { layout } = cgroups;
  const evict = createEvict({ ...parts, onEnd, events, measures });
  const observe = createObserver({ host, images: runtime, rootDir, layout, cgroupVersion, maxPid, clock, log });
  // cgroup v2 has no memory threshold events: the kubelet has no notifier there either.
  const notifier =
    kubelet.kernelMemcgNotification && cgroupVersion === 1
      ? createMemoryNotifier({ host, waitForTarget, clock, log })
      : undefined;
  const observeNode = createNodePressure({
    ...parts,
    settings: evictionSettings(kubelet),
    nodeName,
    observe,
    onObservation: ({ memory }, thresholds) => notifier?.setBounds(memoryBounds(thresholds, memory)),
    candidates: () =>
      daemonSets
        .withoutPlaceholders(desired.list())
        .filter(({ status }) => !isTerminal(status?.phase))
        .map(allocation.allocations.allocatedPod),
    usages,
    reclaim,
    evict,
    events,
    measures,
  });
  const enforceLocalLimits = kubelet.localStorageCapacityIsolation
    ? createLocalLimits({ ...parts, runtime, disk, volumes, rootDir, podLogsDir, evict })
    : undefined;
  const eviction = createEviction({
    ...parts,
    observeNode,
    terminatedPods: () => desired.list().filter(({ status }) => isTerminal(status?.phase)),
    allSourcesReady,
    events,
    enforceLocalLimits,
    changed: notifier?.crossed,
    waitForTarget,
  });
  return notifier ? [notifier, eviction] : [eviction];
}

/** Creates graceful node shutdown, if configured. */
function createShutdown(
  { config, target, metrics, partsOf }: NodeContext,
  { events }: Cluster,
  { waitForTarget }: ObservedTarget,
  { daemonSets }: MaintenanceParts,
): readonly Runnable[] {
  const settings = shutdownSettings(config);
  if (settings.periods.length === 0) return [];
  const { desired, ...parts } = partsOf("shutdown");
  const shutdown = createShutdownManager({
    ...parts,
    ...settings,
    pods: { list: () => daemonSets.withoutPlaceholders(desired.list()) },
    host: target.host,
    isRemote: target.link !== undefined,
    waitForTarget,
    events,
    measures: metrics.measures.shutdowns,
  });
  return [shutdown];
}
