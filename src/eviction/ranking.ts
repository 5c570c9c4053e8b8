import type { Pod } from "../objects.ts";
import { quantityNumber } from "../pod/quantity.ts";
import { requestForPreemption } from "../pod/resources.ts";
import type { DiskUsage, PodUsage } from "./ports.ts";
import { type NodeSignal, signals } from "./signals.ts";
import type { DiskLayout } from "./thresholds.ts";

/** A candidate for eviction, with its usage if known. */
export interface EvictionCandidate {
  readonly pod: Pod;
  readonly usage: PodUsage | undefined;
}

/** Kinds of a pod's files on the starved file system. */
type FileKind = "logs" | "volumes" | "layers";

/** Compares two candidates: negative if the first is to be evicted before the second. */
type Order = (one: EvictionCandidate, other: EvictionCandidate) => number;

/** Sorts pods in the order of eviction.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/#pod-selection-for-kubelet-eviction */
export function rankPods(
  candidates: readonly EvictionCandidate[],
  signal: NodeSignal,
  disks: DiskLayout,
): readonly EvictionCandidate[] {
  const order = orders(signal, disks);
  return candidates.toSorted((one, other) => {
    for (const compare of order) {
      const sign = compare(one, other);
      if (sign !== 0) return sign;
    }
    return 0;
  });
}

function orders(signal: NodeSignal, disks: DiskLayout): readonly Order[] {
  const { resource } = signals[signal];
  if (resource === "pids") return [byPriority, byUsage(({ processes = 0 }) => processes)];
  if (resource === "memory") {
    const used = ({ memoryBytes = 0 }: PodUsage): number => memoryBytes;
    return [
      exceeding(used, (pod) => request(pod, "memory")),
      byPriority,
      byUsage((usage, pod) => used(usage) - request(pod, "memory")),
    ];
  }
  const parts = fileKindsOn(signal, disks);
  const used = (usage: PodUsage): number => filesOf(usage, parts, resource === "inodes" ? "inodes" : "bytes");
  // There are no inode requests; like the kubelet, the excess is computed from the request in bytes.
  return [
    exceeding(used, (pod) => request(pod, resource)),
    byPriority,
    byUsage((usage, pod) => used(usage) - request(pod, "ephemeral-storage")),
  ];
}

/** Returns the kinds of a pod's files that are on the file system which an eviction signal measures. */
function fileKindsOn(signal: NodeSignal, { dedicatedImageFs, splitContainerFs }: DiskLayout): readonly FileKind[] {
  if (!dedicatedImageFs) return ["layers", "logs", "volumes"];
  const ofNode: readonly FileKind[] = splitContainerFs ? ["logs", "volumes", "layers"] : ["logs", "volumes"];
  if (signal.startsWith("nodefs.")) return ofNode;
  if (signal.startsWith("containerfs.")) return splitContainerFs ? ofNode : ["layers"];
  return splitContainerFs ? [] : ["layers"];
}

function filesOf({ containers, volumes }: PodUsage, parts: readonly FileKind[], unit: keyof DiskUsage): number {
  const runs = [...containers.values()];
  const uses = [
    ...(parts.includes("layers") ? runs.map(({ layer }) => layer) : []),
    ...(parts.includes("logs") ? runs.map(({ logs }) => logs) : []),
    ...(parts.includes("volumes") ? volumes.values() : []),
  ];
  return uses.reduce((sum, use) => sum + (use?.[unit] ?? 0), 0);
}

function request(pod: Pod, resource: string): number {
  return quantityNumber(requestForPreemption(pod, resource));
}

/** Pods with unknown usage come first, then those that exceed their requests. */
function exceeding(used: (usage: PodUsage) => number, requested: (pod: Pod) => number): Order {
  const exceeds = ({ pod, usage }: EvictionCandidate) => usage !== undefined && used(usage) > requested(pod);
  return (one, other) => unknownFirst(one, other) ?? first(exceeds(one), exceeds(other));
}

function byUsage(used: (usage: PodUsage, pod: Pod) => number): Order {
  return (one, other) =>
    unknownFirst(one, other) ??
    (other.usage ? used(other.usage, other.pod) : 0) - (one.usage ? used(one.usage, one.pod) : 0);
}

function byPriority(one: EvictionCandidate, other: EvictionCandidate): number {
  return (one.pod.spec.priority ?? 0) - (other.pod.spec.priority ?? 0);
}

function unknownFirst(one: EvictionCandidate, other: EvictionCandidate): number | undefined {
  if (one.usage && other.usage) return undefined;
  return first(one.usage === undefined, other.usage === undefined);
}

function first(one: boolean, other: boolean): number {
  return Number(other) - Number(one);
}
