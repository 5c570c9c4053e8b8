import { canonicalBytes, quantityOrPercentage } from "../pod/quantity.ts";
import { isSignal, type NodeSignal, type SignalObservation, type Observations, signals } from "./signals.ts";

/** The settings of a KubeletConfiguration for thresholds, by signal. */
export interface EvictionSettings {
  readonly evictionHard: Readonly<Record<string, string>>;
  readonly evictionSoft: Readonly<Record<string, string>>;
  /** Durations in milliseconds. */
  readonly evictionSoftGracePeriod: Readonly<Record<string, number>>;
  readonly evictionMinimumReclaim: Readonly<Record<string, string>>;
  /** Enforcement levels, such as `pods`. */
  readonly enforceNodeAllocatable: readonly string[];
}

export interface Threshold {
  readonly signal: NodeSignal;
  /** A quantity, or a percentage of the capacity. */
  readonly value: string;
  /** Grace period, milliseconds; 0 for a hard threshold. */
  readonly graceMs: number;
  /** Minimum reclaim, the additional amount available before the threshold is no longer met: a quantity or a percentage. */
  readonly minReclaim?: string;
}

/** Which of the target's file systems are separate. */
export interface DiskLayout {
  /** True if images are not on the root directory's file system. */
  readonly dedicatedImageFs: boolean;
  /** True if containers' layers are not on the images' file system. */
  readonly splitContainerFs: boolean;
}

/** The configured thresholds. If allocatable resources are enforced for pods, the hard memory threshold also applies to
 *  allocatable memory. Thresholds of containerfs are derived, not configured. @see withContainerThresholds */
export function parseThresholds(settings: EvictionSettings): readonly Threshold[] {
  const { evictionHard, evictionSoft, evictionSoftGracePeriod: grace, enforceNodeAllocatable } = settings;
  const hard = listed(evictionHard, settings, () => 0);
  const soft = listed(evictionSoft, settings, (signal) => grace[signal] ?? 0);
  const all = [...hard, ...soft];
  if (!enforceNodeAllocatable.includes("pods")) return all;
  const ofMemory = all.filter(({ signal, graceMs }) => signal === "memory.available" && graceMs === 0);
  return [...all, ...ofMemory.map((threshold) => ({ ...threshold, signal: "allocatableMemory.available" as const }))];
}

/** Parses thresholds; 0 % and 100 % set none. */
function listed(
  values: Readonly<Record<string, string>>,
  { evictionMinimumReclaim: minReclaims }: EvictionSettings,
  graceOf: (signal: NodeSignal) => number,
): readonly Threshold[] {
  return Object.entries(values).flatMap(([signal, value]) => {
    if (!isSignal(signal) || value === "0%" || value === "100%") return [];
    const minReclaim = minReclaims[signal];
    return [{ signal, value, graceMs: graceOf(signal), ...(minReclaim !== undefined && { minReclaim }) }];
  });
}

const containerSignals = {
  "containerfs.available": { node: "nodefs.available", image: "imagefs.available" },
  "containerfs.inodesFree": { node: "nodefs.inodesFree", image: "imagefs.inodesFree" },
} as const;

/** Adds thresholds for containerfs, copied from the thresholds of the file system that holds the containers' layers.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals */
export function withContainerThresholds(
  thresholds: readonly Threshold[],
  { dedicatedImageFs, splitContainerFs }: DiskLayout,
): readonly Threshold[] {
  const own = thresholds.filter(({ signal }) => !Object.hasOwn(containerSignals, signal));
  // Layers are on the images' file system; if images and layers are separate, they are on the node's.
  const beside = dedicatedImageFs && !splitContainerFs ? "image" : "node";
  const derived = Object.entries(containerSignals).flatMap(([name, of]) =>
    own
      .filter(({ signal }) => signal === of[beside])
      .map((threshold) => ({ ...threshold, signal: name as NodeSignal })),
  );
  return [...own, ...derived];
}

/** The thresholds that are met. @param reclaimed true to add each threshold's minimum reclaim to its value. */
export function thresholdsMet(
  thresholds: readonly Threshold[],
  observations: Observations,
  { reclaimed }: { readonly reclaimed: boolean },
): readonly Threshold[] {
  return thresholds.filter(({ signal, value, minReclaim }) => {
    const seen = observations.get(signal);
    if (!seen) return false;
    const more = reclaimed && minReclaim !== undefined ? quantityOrPercentage(minReclaim, seen.capacity) : 0;
    return seen.available < quantityOrPercentage(value, seen.capacity) + more;
  });
}

/** Identifies a threshold across rounds. */
export function thresholdKey({ signal, value, graceMs }: Threshold): string {
  return `${signal} ${value} ${graceMs}`;
}

/** A threshold's value for a capacity, formatted for messages. */
export function thresholdText({ value }: Threshold, { capacity }: SignalObservation): string {
  return value.endsWith("%") ? canonicalBytes(quantityOrPercentage(value, capacity), 1024) : value;
}

/** An available amount, formatted for messages. */
export function availableText(signal: NodeSignal, { available }: SignalObservation): string {
  const { resource } = signals[signal];
  return canonicalBytes(available, resource === "inodes" || resource === "pids" ? 1000 : 1024);
}
