import { cgroupMount } from "../host/cgroup-inheritance.ts";
import { quantityOrPercentage } from "../pod/quantity.ts";
import type { NodeSignal } from "./signals.ts";
import type { Threshold } from "./thresholds.ts";

/** Memory of a cgroup and its descendants, bytes. */
export interface MemoryReading {
  /** Path from the root of the hierarchy, such as `/kubepods`; empty for the root. */
  readonly cgroup: string;
  readonly usage: number;
  /** Usage minus inactive file pages. */
  readonly workingSet: number;
  /** Memory available to the cgroup in total. */
  readonly capacity: number;
}

/** A usage bound of a cgroup, whose crossing in either direction the kernel reports. */
export interface MemoryBound {
  /** The kubelet's name: `hard allocatable memory`. */
  readonly name: string;
  /** Directory of the cgroup (v1). */
  readonly directory: string;
  readonly bytes: number;
}

/** Converts memory thresholds to cgroup usages: the working set at which the threshold is met, plus the inactive file pages
 *  that the kernel also counts as usage. Thresholds without a reading are omitted. (kubelet, memory_threshold_notifier) */
export function memoryBounds(
  thresholds: readonly Threshold[],
  readings: ReadonlyMap<NodeSignal, MemoryReading>,
): readonly MemoryBound[] {
  return thresholds.flatMap(({ signal, value, graceMs }) => {
    const reading = readings.get(signal);
    if (!reading) return [];
    const { cgroup, usage, workingSet, capacity } = reading;
    const allocatable = signal === "allocatableMemory.available" ? "allocatable " : "";
    return [
      {
        name: `${graceMs === 0 ? "hard" : "soft"} ${allocatable}memory`,
        directory: `${cgroupMount}/memory${cgroup}`,
        bytes: Math.round(capacity - quantityOrPercentage(value, capacity) + usage - workingSet),
      },
    ];
  });
}
