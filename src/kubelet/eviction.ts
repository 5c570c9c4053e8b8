import { parseDuration } from "../lib/go-duration.ts";
import { createEvict } from "../eviction/evict.ts";
import { createEviction } from "../eviction/manager.ts";
import { createLocalLimits } from "../eviction/local-limits.ts";
import { memoryBounds } from "../eviction/memory-bounds.ts";
import { createMemoryNotifier } from "../eviction/memory-notifier.ts";
import { createNodePressure, type NodePressureDeps } from "../eviction/node-pressure.ts";
import { createObserver } from "../eviction/observer.ts";
import type { Reclaim, PodUsages } from "../eviction/ports.ts";
import type { DiskMeter } from "../host/disk-meter.ts";
import type { Service } from "../lib/service-group.ts";
import { isTerminal } from "../pod/phase.ts";
import type { Volumes } from "../volumes/volumes.ts";
import type { AllocationStages } from "./allocation.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { Placeholders } from "./placeholders.ts";

interface EvictionParts extends Pick<AllocationStages, "allocations"> {
  readonly volumes: Volumes;
  readonly placeholders: Placeholders;
  readonly disk: DiskMeter;
  readonly usages: PodUsages;
  readonly reclaim: Reclaim;
  readonly sourcesSeen: () => boolean;
}

/** Creates the eviction manager. */
export function createEvictionManager(
  context: NodeContext,
  { events }: Cluster,
  { waitForTarget, agent: { facts }, cgroups }: ObservedTarget,
  parts: EvictionParts,
): readonly Service[] {
  const { config, target, metrics, clock, log, hand, onEnd } = context;
  const { kubelet, nodeName, rootDir } = config;
  const { host, runtime } = target;
  const { volumes, placeholders, disk, allocations } = parts;
  const { desired: pods, podCache, worker, pressure, signals } = hand("eviction");
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
  const common = { ...(waitForTarget && { waitForTarget }), clock, log };
  // cgroup v2 has no memory threshold events: the kubelet has no notifier there either.
  const notifier =
    kubelet.kernelMemcgNotification && facts.cgroupVersion === 1
      ? createMemoryNotifier({ host, ...common })
      : undefined;
  const observeNode = createNodePressure({
    ...parts,
    ...(notifier && {
      onObservation: ({ memory }, thresholds) => notifier.setBounds(memoryBounds(thresholds, memory)),
    }),
    settings: evictionSettings(kubelet),
    nodeName,
    observe,
    candidates: () =>
      placeholders
        .without(pods.list())
        .filter(({ status }) => !isTerminal(status?.phase))
        .map(allocations.allocatedPod),
    evict,
    pressure,
    signals,
    events,
    measures,
    clock,
    log,
  });
  const files = { disk, volumes, rootDir, podLogsDir: kubelet.podLogsDir };
  const enforceLocalLimits = createLocalLimits({ ...files, pods, cache: podCache, runtime, evict, clock });
  const eviction = createEviction({
    observeNode,
    terminatedPods: () => pods.list().filter(({ status }) => isTerminal(status?.phase)),
    sourcesReady: parts.sourcesSeen,
    worker,
    events,
    ...(kubelet.localStorageCapacityIsolation && { enforceLocalLimits }),
    ...(notifier && { changed: notifier.crossed }),
    ...common,
  });
  return notifier ? [notifier, eviction] : [eviction];
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
