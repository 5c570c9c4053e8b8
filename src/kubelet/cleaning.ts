import { createHousekeeping } from "../sync/housekeeping.ts";
import type { PodWorkers } from "../sync/pod-workers.ts";
import type { SyncLoop } from "../sync/sync-loop.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { Allocating } from "./allocation.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import { countOrphans } from "./counts.ts";
import { collectGarbage } from "./garbage.ts";
import type { OwnImages } from "./images.ts";

interface CleaningParts extends Pick<Allocating, "allocations">, OwnImages {
  readonly volumes: Volumes;
  readonly workers: PodWorkers;
  readonly syncLoop: SyncLoop;
  /** True once every source has reported, and all updates have been handled. */
  readonly sourcesSeen: () => boolean;
}

/** Creates housekeeping and garbage collection. */
export function cleanUp(context: NodeContext, cluster: Cluster, observed: Observed, parts: CleaningParts) {
  const { metrics, clock, log, hand } = context;
  const { presence } = observed;
  const { volumes, allocations, syncLoop, sourcesSeen } = parts;
  const common = { clock, log, ...(presence && { presence }) };
  const { garbage, collecting, reclaim } = collectGarbage(context, cluster, observed, parts);
  const { asked, seen, worker, spoken } = hand("housekeeping");
  const housekeeping = createHousekeeping({
    ...common,
    pods: asked,
    cache: seen,
    worker,
    spoken,
    sourcesSeen,
    workers: countOrphans(parts.workers, { worker, cache: seen }, metrics.measures),
    waits: syncLoop.waits,
    resume: syncLoop.resume,
    directories: volumes.podDirectories,
    dropRecords: allocations.dropRecords,
    measures: metrics.measures,
    async sweep(uid, countsOn, signal) {
      if (!countsOn) await garbage.podGone(uid, signal);
      await volumes.removePodDirectory(uid, signal);
    },
  });
  return { running: [housekeeping, ...collecting], reclaim };
}
