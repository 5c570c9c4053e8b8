import { parseDuration } from "../config/go-values.ts";
import { createEvict } from "../eviction/evict.ts";
import { createEviction } from "../eviction/eviction.ts";
import { createLocalLimits } from "../eviction/local-limits.ts";
import { createNodePressure, type NodePressureDeps } from "../eviction/node-pressure.ts";
import { createObserver } from "../eviction/observer.ts";
import type { DiskMeter } from "../host/disk-meter.ts";
import type { Service } from "../lib/service-group.ts";
import type { Reclaim } from "../pipeline.ts";
import { isTerminal } from "../pod/phase.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { Allocating } from "./allocation.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import type { PodUsages } from "../usage.ts";

interface EvictingParts extends Pick<Allocating, "allocations"> {
  readonly volumes: Volumes;
  readonly disk: DiskMeter;
  readonly usages: PodUsages;
  readonly reclaim: Reclaim;
}

/** Looks whether the node runs short of anything, and evicts pods. */
export function evictPods(
  context: NodeContext,
  { events }: Cluster,
  { presence, agent: { facts }, cgroups }: Observed,
  parts: EvictingParts,
): Service {
  const { config, target, metrics, clock, log, hand, onEnd } = context;
  const { kubelet, nodeName, rootDir } = config;
  const { host, runtime } = target;
  const { volumes, disk, allocations } = parts;
  const { asked: pods, worker, pressure, signals } = hand("eviction");
  const { evictions: measures } = metrics.measures;
  const evict = createEvict({ worker, onEnd, signals, events, measures, log });
  const observe = createObserver({
    host,
    images: runtime,
    rootDir,
    layout: cgroups.layout,
    cgroupVersion: facts.cgroupVersion,
    maxPid: facts.maxPid,
    clock,
    log,
  });
  const look = createNodePressure({
    ...parts,
    settings: evictionSettings(kubelet),
    nodeName,
    observe,
    candidates: () =>
      pods
        .list()
        .filter(({ status }) => !isTerminal(status?.phase))
        .map(allocations.of),
    evict,
    pressure,
    signals,
    events,
    measures,
    clock,
    log,
  });
  const { podLogsDir } = kubelet;
  const holdToLimits = createLocalLimits({ pods, volumes, disk, runtime, rootDir, podLogsDir, evict, clock });
  return createEviction({
    look,
    worker,
    ...(kubelet.localStorageCapacityIsolation && { holdToLimits }),
    ...(presence && { presence }),
    clock,
    log,
  });
}

function evictionSettings(kubelet: NodeContext["config"]["kubelet"]): NodePressureDeps["settings"] {
  const grace = Object.entries(kubelet.evictionSoftGracePeriod);
  return {
    ...kubelet,
    evictionSoftGracePeriod: Object.fromEntries(grace.map(([signal, text]) => [signal, parseDuration(text) ?? 0])),
    transitionMs: kubelet.evictionPressureTransitionPeriod,
    maxPodGraceSeconds: kubelet.evictionMaxPodGracePeriod,
  };
}
