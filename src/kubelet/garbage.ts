import type { Reclaim } from "../eviction/ports.ts";
import { type ContainerCollection, createContainerCollection } from "../gc/container-collection.ts";
import { createImageCollection } from "../gc/image-collection.ts";
import type { Service } from "../lib/service-group.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { ImageRecords } from "./images.ts";
import { imageLimits, logLinksDirectory } from "./settings.ts";

interface GarbageParts extends ImageRecords {
  /** True once every source has reported, and all updates have been handled. */
  readonly sourcesSeen: () => boolean;
}

/** Creates garbage collection of containers and images. */
export function createGarbageCollection(
  { config, target, metrics, tracer, clock, log, hand }: NodeContext,
  { events }: Cluster,
  { waitForTarget, pleg, ownerLabels, targetClock }: ObservedTarget,
  { pulled, pullManager, sourcesSeen }: GarbageParts,
): { readonly garbage: ContainerCollection; readonly reclaim: Reclaim; readonly collecting: readonly Service[] } {
  const { host, runtime } = target;
  const { kubelet, nodeName } = config;
  const common = {
    runtime,
    fs: host.fs,
    nodeName,
    events,
    tracer,
    clock,
    log,
    ...(waitForTarget && { waitForTarget }),
  };
  const { desired, podCache, worker } = hand("garbage");
  const garbage = createContainerCollection({
    ...common,
    pods: desired,
    cache: podCache,
    worker,
    inspector: pleg,
    sourcesSeen,
    ownerLabels,
    podLogsDir: kubelet.podLogsDir,
    containerLogsDir: logLinksDirectory,
    limits: config.deadContainers,
    targetClock,
  });
  const images = createImageCollection({
    ...common,
    cache: hand("imageCollection").podCache,
    ...(pulled && { pulled }),
    ...(pullManager && { prunePulls: pullManager.prune }),
    limits: imageLimits(kubelet),
    measures: metrics.measures.imageRemovals,
  });
  const { deleteUnusedContainers } = garbage;
  const { deleteUnusedImages } = images;
  return { garbage, reclaim: { deleteUnusedContainers, deleteUnusedImages }, collecting: [garbage, images] };
}
