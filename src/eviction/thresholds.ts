import { canonicalBytes, shareOf } from "../pod/quantity.ts";
import { isSignal, type NodeSignal, type Observation, type Observations, signals } from "./signals.ts";

/** The settings of a KubeletConfiguration that thresholds are made of, by signal. */
export interface EvictionSettings {
  readonly evictionHard: Readonly<Record<string, string>>;
  readonly evictionSoft: Readonly<Record<string, string>>;
  /** Durations in milliseconds. */
  readonly evictionSoftGracePeriod: Readonly<Record<string, number>>;
  readonly evictionMinimumReclaim: Readonly<Record<string, string>>;
  /** Names of all that is held to allocatable resources, such as `pods`. */
  readonly enforceNodeAllocatable: readonly string[];
}

/** A bound below which pods are evicted. */
export interface Threshold {
  readonly signal: NodeSignal;
  /** A quantity, or a percentage of the capacity. */
  readonly value: string;
  /** How long the bound has to be crossed, milliseconds; 0 for a hard threshold. */
  readonly graceMs: number;
  /** How much more has to be free before the threshold is no longer met: a quantity or a percentage. */
  readonly minReclaim?: string;
}

/** Which file systems of the target are one. */
export interface DiskLayout {
  /** Images are not on the file system of the root directory. */
  readonly imagesApart: boolean;
  /** Containers' layers are not on the file system of the images. */
  readonly layersApart: boolean;
}

/** The configured thresholds. The hard one of memory holds for all pods together too, where they are held to the allocatable memory.
 *  Those of containerfs are not set by users. @see withContainerThresholds */
export function thresholdsOf(settings: EvictionSettings): readonly Threshold[] {
  const { evictionHard, evictionSoft, evictionSoftGracePeriod: grace, enforceNodeAllocatable } = settings;
  const hard = listed(evictionHard, settings, () => 0);
  const soft = listed(evictionSoft, settings, (signal) => grace[signal] ?? 0);
  const all = [...hard, ...soft];
  if (!enforceNodeAllocatable.includes("pods")) return all;
  const ofMemory = all.filter(({ signal, graceMs }) => signal === "memory.available" && graceMs === 0);
  return [...all, ...ofMemory.map((threshold) => ({ ...threshold, signal: "allocatableMemory.available" as const }))];
}

/** A percentage of 0 or 100 sets no threshold. */
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

/** The thresholds with those of containerfs: the bounds of the file system that the layers are on.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals */
export function withContainerThresholds(
  thresholds: readonly Threshold[],
  { imagesApart, layersApart }: DiskLayout,
): readonly Threshold[] {
  const own = thresholds.filter(({ signal }) => !Object.hasOwn(containerSignals, signal));
  // Layers lie beside the images; where those are apart and the layers apart from them, on the node's file system.
  const beside = imagesApart && !layersApart ? "image" : "node";
  const derived = Object.entries(containerSignals).flatMap(([name, of]) =>
    own
      .filter(({ signal }) => signal === of[beside])
      .map((threshold) => ({ ...threshold, signal: name as NodeSignal })),
  );
  return [...own, ...derived];
}

/** The thresholds that are crossed.
 *  @param reclaimed a threshold with a minimum to reclaim is crossed until that much more is free. */
export function crossed(
  thresholds: readonly Threshold[],
  observations: Observations,
  { reclaimed }: { readonly reclaimed: boolean },
): readonly Threshold[] {
  return thresholds.filter(({ signal, value, minReclaim }) => {
    const seen = observations.get(signal);
    if (!seen) return false;
    const more = reclaimed && minReclaim !== undefined ? shareOf(minReclaim, seen.capacity) : 0;
    return seen.available < shareOf(value, seen.capacity) + more;
  });
}

/** The same threshold of two rounds. */
export function keyOf({ signal, value, graceMs }: Threshold): string {
  return `${signal} ${value} ${graceMs}`;
}

/** A threshold's value for what is there, as messages show it. */
export function boundText({ value }: Threshold, { capacity }: Observation): string {
  return value.endsWith("%") ? canonicalBytes(shareOf(value, capacity), 1024) : value;
}

/** An available amount, as messages show it. */
export function availableText(signal: NodeSignal, { available }: Observation): string {
  const { resource } = signals[signal];
  return canonicalBytes(available, resource === "inodes" || resource === "pids" ? 1000 : 1024);
}
