import { messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, NodePressure, Pressure } from "../pipeline.ts";
import { isCritical } from "../pod/containers.ts";
import { podFullName, nodeReference } from "../pod/reference.ts";
import type { ValuePair } from "../state/values.ts";
import type { Sends } from "../state/signals.ts";
import type { Evict, EvictedPod, EvictionMeasures } from "./evict.ts";
import { evictionNotice } from "./message.ts";
import type { NodeObservation } from "./observer.ts";
import type { Reclaim, PodUsages } from "./ports.ts";
import { rankPods } from "./ranking.ts";
import { type NodeSignal, type Observations, signals as known, signals } from "./signals.ts";
import {
  thresholdsMet,
  type DiskLayout,
  type EvictionSettings,
  type Threshold,
  parseThresholds,
  withContainerThresholds,
  thresholdKey,
} from "./thresholds.ts";

export interface NodePressureDeps extends ClockAndLog {
  readonly settings: EvictionSettings & {
    /** KubeletConfiguration.evictionPressureTransitionPeriod, milliseconds. */
    readonly transitionMs: number;
    /** KubeletConfiguration.evictionMaxPodGracePeriod, for soft thresholds. */
    readonly maxPodGraceSeconds: number;
  };
  readonly nodeName: string;
  readonly observe: (signal: AbortSignal) => Promise<NodeObservation>;
  /** Called with each reading and the configured thresholds. */
  readonly onObservation?: (reading: NodeObservation, thresholds: readonly Threshold[]) => void;
  /** Pods that may be evicted, with their allocated resources. */
  readonly candidates: () => readonly Pod[];
  readonly usages: PodUsages;
  readonly reclaim: Reclaim;
  readonly evict: Evict;
  readonly pressure: ValuePair<NodePressure>["writer"];
  readonly signals: Sends<"nodeChanged">;
  readonly events: EventSink;
  readonly measures: Pick<EvictionMeasures, "observationAge">;
}

/** One observation of the node's resources. */
export interface NodePressureRound {
  readonly disks: DiskLayout | undefined;
  /** Reclaims the starved resource, if any: node-level resources first, then by evicting one pod. @returns the pod that was
   *  evicted now, or before and is still terminating: no other pod is evicted then. */
  reclaim(signal: AbortSignal): Promise<EvictedPod | undefined>;
}

/** Grace period for hard thresholds, seconds. */
const hardGraceSeconds = 1;
/** Assumed disk layout until the runtime has reported. */
const singleDisk: DiskLayout = { dedicatedImageFs: false, splitContainerFs: false };

/** Observes the node's resources and updates its pressure conditions; each call is one round.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ */
export function createNodePressure(deps: NodePressureDeps): (signal: AbortSignal) => Promise<NodePressureRound> {
  const { settings, observe, clock } = deps;
  const configured = parseThresholds(settings);
  const decider = createDecider(settings.transitionMs);
  return async (signal) => {
    const reading = await observe(signal);
    const { observations, disks, problem } = reading;
    deps.onObservation?.(reading, configured);
    const observedAt = clock.monotonic();
    const layout = disks ?? singleDisk;
    const thresholds = withContainerThresholds(configured, layout);
    const { pressure, metThresholds } = decider.decide(thresholds, observations, observedAt);
    updatePressure(deps, { pressure, problem });
    const round = { thresholds, metThresholds, observations, layout, observedAt };
    return { disks, reclaim: (stop) => reclaimResource(deps, round, stop) };
  };
}

interface Round {
  readonly thresholds: readonly Threshold[];
  readonly metThresholds: readonly Threshold[];
  readonly observations: Observations;
  readonly layout: DiskLayout;
  /** Time on the monotonic clock, milliseconds. */
  readonly observedAt: number;
}

/** Stores the pressure, and signals changes. */
function updatePressure({ pressure: cell, signals }: NodePressureDeps, now: NodePressure): void {
  const before = cell.get();
  cell.set(now);
  if (JSON.stringify(before) !== JSON.stringify(now)) signals.nodeChanged.send();
}

async function reclaimResource(
  deps: NodePressureDeps,
  round: Round,
  signal: AbortSignal,
): Promise<EvictedPod | undefined> {
  const { events, nodeName, candidates, usages, measures, clock, log } = deps;
  const [first] = round.metThresholds;
  if (!first) return undefined;
  const { resource } = known[first.signal];
  log.warn({ signal: first.signal, ...round.observations.get(first.signal) }, `attempting to reclaim ${resource}`);
  events.event(nodeReference(nodeName), "Warning", "EvictionThresholdMet", `Attempting to reclaim ${resource}`);
  if (await reclaimNodeLevel(deps, round, first.signal, signal)) return undefined;
  const pods = candidates();
  if (pods.length === 0) {
    log.warn({ resource }, "eviction thresholds have been met, but no pods are active to evict");
    return undefined;
  }
  const used = await usages.now(known[first.signal].pressure === "disk", signal);
  const order = rankPods(
    pods.map((pod) => ({ pod, usage: used.get(pod.metadata.uid) })),
    first.signal,
    round.layout,
  );
  const now = clock.monotonic();
  for (const each of round.metThresholds) measures.observationAge(each.signal, now - round.observedAt);
  for (const { pod, usage } of order) {
    if (isCritical(pod)) {
      log.warn({ pod: podFullName(pod), resource }, "skipping critical pod");
      continue;
    }
    const notice = evictionNotice({
      resource,
      pod,
      usage,
      thresholds: round.metThresholds,
      observations: round.observations,
    });
    const graceSeconds = gracePeriodSeconds(deps, pod, first);
    const how = { ...notice, disruption: notice.message, graceSeconds, signal: first.signal };
    const evicted = deps.evict(pod, how);
    if (evicted) return evicted;
  }
  log.warn({ resource }, "unable to evict any pods from the node");
  return undefined;
}

/** One second for a hard threshold; the shorter of the pod's and the configured grace period for a soft one. */
function gracePeriodSeconds({ settings }: NodePressureDeps, { spec }: Pod, { graceMs }: Threshold): number {
  if (graceMs === 0) return hardGraceSeconds;
  const { maxPodGraceSeconds: max } = settings;
  return Math.min(max, spec.terminationGracePeriodSeconds ?? max);
}

/** Deletes unused containers and images on the starved file system. @returns true if no threshold is met anymore. */
async function reclaimNodeLevel(
  deps: NodePressureDeps,
  round: Round,
  name: NodeSignal,
  signal: AbortSignal,
): Promise<boolean> {
  const steps = reclaimSteps(deps.reclaim, name, round.layout);
  for (const step of steps) {
    try {
      await step(signal);
    } catch (error) {
      signal.throwIfAborted();
      deps.log.warn({ why: messageOf(error), signal: name }, "cannot reclaim node-level resources");
    }
  }
  if (steps.length === 0) return false;
  const { observations } = await deps.observe(signal);
  return thresholdsMet(round.thresholds, observations, { reclaimed: true }).length === 0;
}

type Step = (signal: AbortSignal) => Promise<unknown>;

/** Reclaim steps that free space on the file system of a signal. */
function reclaimSteps(
  reclaim: Reclaim,
  name: NodeSignal,
  { dedicatedImageFs, splitContainerFs }: DiskLayout,
): readonly Step[] {
  if (known[name].pressure !== "disk") return [];
  const containers: Step = (signal) => reclaim.deleteUnusedContainers(signal);
  const images: Step = (signal) => reclaim.deleteUnusedImages(signal);
  if (!dedicatedImageFs) return [containers, images];
  if (splitContainerFs) return name.startsWith("imagefs.") ? [images] : [containers];
  return name.startsWith("nodefs.") ? [] : [containers, images];
}

/** Creates a decider that starts without pressure. @param transitionMs KubeletConfiguration.evictionPressureTransitionPeriod: how long a
 *  condition stays after its threshold is no longer met.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#node-conditions */
export function createDecider(transitionMs: number) {
  let met: readonly Threshold[] = [];
  let since = new Map<string, number>();
  const lastMet = new Map<keyof Pressure, number>();
  return {
    /** @param nowMs time on the monotonic clock, milliseconds. */
    decide(thresholds: readonly Threshold[], observations: Observations, nowMs: number) {
      const now = thresholdsMet(thresholds, observations, { reclaimed: false });
      // A threshold that was met stays met until its minimum reclaim is reached.
      const stillMet = thresholdsMet(met, observations, { reclaimed: true });
      const crossedNow = distinct([...now, ...stillMet]);
      since = new Map(crossedNow.map((each) => [thresholdKey(each), since.get(thresholdKey(each)) ?? nowMs]));
      for (const { signal } of crossedNow) lastMet.set(signals[signal].pressure, nowMs);
      met = crossedNow.filter((each) => nowMs - (since.get(thresholdKey(each)) ?? nowMs) >= each.graceMs);
      const hasPressure = (name: keyof Pressure) => {
        const last = lastMet.get(name);
        return last !== undefined && (last === nowMs || nowMs - last < transitionMs);
      };
      return {
        pressure: { memory: hasPressure("memory"), disk: hasPressure("disk"), pid: hasPressure("pid") },
        metThresholds: [...met.filter(isOfMemory), ...met.filter((each) => !isOfMemory(each))],
      };
    },
  };
}

function distinct(thresholds: readonly Threshold[]): readonly Threshold[] {
  return [...new Map(thresholds.map((each) => [thresholdKey(each), each])).values()];
}

function isOfMemory({ signal }: Threshold): boolean {
  return signals[signal].resource === "memory";
}
