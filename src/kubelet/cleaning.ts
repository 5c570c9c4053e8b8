import { createEviction } from "../eviction/eviction.ts";
import { createGarbage } from "../gc/garbage.ts";
import type { DiskMeter } from "../host/disk-meter.ts";
import type { Service } from "../lib/service-group.ts";
import { createHousekeeping } from "../sync/housekeeping.ts";
import type { PodWorkers } from "../sync/pod-workers.ts";
import type { SyncLoop } from "../sync/sync-loop.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { Allocating } from "./allocation.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import { countOrphans } from "./counts.ts";
import { logLinksDirectory } from "./settings.ts";
import { watchShutdown } from "./shutdown.ts";

interface CleaningParts extends Pick<Allocating, "allocations"> {
  readonly volumes: Volumes;
  readonly disk: DiskMeter;
  readonly workers: PodWorkers;
  readonly syncLoop: SyncLoop;
  /** Every source has spoken, and all that they said was taken in. */
  readonly sourcesSeen: () => boolean;
}

/** Finds and clears away leftovers of pods, and ends pods that take too much of the disk. */
export function cleanUp(context: NodeContext, cluster: Cluster, observed: Observed, parts: CleaningParts) {
  const { config, target, metrics, clock, log, hand } = context;
  const { kubelet, rootDir } = config;
  const { host, runtime } = target;
  const { presence, pleg } = observed;
  const { volumes, allocations, syncLoop, sourcesSeen, disk } = parts;
  const common = { clock, log, ...(presence && { presence }) };
  const { podLogsDir } = kubelet;
  const garbage = createGarbage({
    ...common,
    runtime,
    fs: host.fs,
    cache: hand("garbage").seen,
    inspector: pleg,
    podLogsDir,
    containerLogsDir: logLinksDirectory,
  });
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
    async sweep(uid, countsOn, signal) {
      if (!countsOn) await garbage.podGone(uid, signal);
      await volumes.removePodDirectory(uid, signal);
    },
  });
  const { asked: pods, ...ending } = hand("eviction");
  const { evictions: measures } = metrics.measures;
  const { events } = cluster;
  const where = { host, runtime, rootDir, podLogsDir };
  const eviction = createEviction({ ...common, ...where, ...ending, pods, disk, volumes, events, measures });
  const evicting: readonly Service[] = kubelet.localStorageCapacityIsolation ? [eviction] : [];
  return [housekeeping, garbage, ...evicting, ...watchShutdown(context, cluster, observed)];
}
