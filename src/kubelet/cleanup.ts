import { createHousekeeping } from "../sync/housekeeping.ts";
import type { PodWorkers } from "../sync/pod-workers.ts";
import type { SyncLoop } from "../sync/sync-loop.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { AllocationStages } from "./allocation.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import { countOrphans } from "./pod-counters.ts";
import { createGarbageCollection } from "./garbage.ts";
import type { ImageRecords } from "./images.ts";

interface CleanupParts extends Pick<AllocationStages, "allocations">, ImageRecords {
  readonly volumes: Volumes;
  readonly workers: PodWorkers;
  readonly syncLoop: SyncLoop;
  /** True once every source has reported, and all updates have been handled. */
  readonly sourcesSeen: () => boolean;
}

/** Creates housekeeping and garbage collection. */
export function createCleanup(context: NodeContext, cluster: Cluster, observed: ObservedTarget, parts: CleanupParts) {
  const { metrics, clock, log, hand } = context;
  const { waitForTarget } = observed;
  const { volumes, allocations, syncLoop, sourcesSeen } = parts;
  const common = { clock, log, ...(waitForTarget && { waitForTarget }) };
  const { garbage, collecting, reclaim } = createGarbageCollection(context, cluster, observed, parts);
  const { desired, podCache, worker, sourcesReady } = hand("housekeeping");
  const housekeeping = createHousekeeping({
    ...common,
    pods: desired,
    cache: podCache,
    worker,
    sourcesReady,
    sourcesSeen,
    workers: countOrphans(parts.workers, { worker, cache: podCache }, metrics.measures),
    isWaiting: syncLoop.isWaiting,
    resumeWaiting: syncLoop.resumeWaiting,
    directories: volumes.podDirectories,
    pruneRecords: allocations.pruneRecords,
    measures: metrics.measures,
    async cleanUpPod(uid, keepsContainers, signal) {
      if (!keepsContainers) await garbage.removePodLeftovers(uid, signal);
      await volumes.removePodDirectory(uid, signal);
    },
  });
  return { running: [housekeeping, ...collecting], reclaim };
}
