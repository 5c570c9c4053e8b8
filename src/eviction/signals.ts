import type { EvictionSignal } from "../config/eviction-checks.ts";
import type { Pressure } from "../pipeline.ts";

/** The kubelet's eviction signals.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#eviction-signals */
export const signals = {
  "memory.available": { resource: "memory", pressure: "memory" },
  "allocatableMemory.available": { resource: "memory", pressure: "memory" },
  "nodefs.available": { resource: "ephemeral-storage", pressure: "disk" },
  "nodefs.inodesFree": { resource: "inodes", pressure: "disk" },
  "imagefs.available": { resource: "ephemeral-storage", pressure: "disk" },
  "imagefs.inodesFree": { resource: "inodes", pressure: "disk" },
  "containerfs.available": { resource: "ephemeral-storage", pressure: "disk" },
  "containerfs.inodesFree": { resource: "inodes", pressure: "disk" },
  "pid.available": { resource: "pids", pressure: "pid" },
} as const satisfies Readonly<
  Record<EvictionSignal, { readonly resource: StarvedResource; readonly pressure: keyof Pressure }>
>;

/** A starved resource, as named in messages and events. */
export type StarvedResource = "memory" | "ephemeral-storage" | "inodes" | "pids";

export type NodeSignal = EvictionSignal;

/** An observation of one resource, in bytes or as a number. */
export interface SignalObservation {
  readonly available: number;
  readonly capacity: number;
}

export type Observations = ReadonlyMap<NodeSignal, SignalObservation>;

export function isSignal(name: string): name is NodeSignal {
  return Object.hasOwn(signals, name);
}
