import { cgroupMount } from "../host/cgroup-inheritance.ts";
import { shareOf } from "../pod/quantity.ts";
import type { NodeSignal } from "./signals.ts";
import type { Threshold } from "./thresholds.ts";

/** Memory of a cgroup and all below it, bytes. */
export interface MemoryReading {
  /** Path from the root of the hierarchy, such as `/kubepods`; empty for the root. */
  readonly cgroup: string;
  readonly usage: number;
  /** Usage without the file pages that the kernel would drop first. */
  readonly workingSet: number;
  /** All that there is for the cgroup. */
  readonly capacity: number;
}

/** A usage of memory that the kernel is to tell of when a cgroup crosses it, up or down. */
export interface MemoryBound {
  /** In the kubelet's words: `hard allocatable memory`. */
  readonly name: string;
  /** Directory of the cgroup, version 1. */
  readonly directory: string;
  readonly bytes: number;
}

/** The thresholds of memory as usages of cgroups: a working set that leaves as much as a threshold wants, and the file pages that the
 *  kernel counts as used besides. Those of which no reading is known are left out. (kubelet, memory_threshold_notifier) */
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
        bytes: Math.round(capacity - shareOf(value, capacity) + usage - workingSet),
      },
    ];
  });
}
