import type { Pod } from "../objects.ts";

/** Time that pods from a priority upwards have to end, when their node shuts down. */
export interface GracePeriod {
  /** Least priority of a pod. */
  readonly priority: number;
  readonly seconds: number;
}

/** Pods that end side by side. */
export interface ShutdownGroup<P> extends GracePeriod {
  readonly pods: readonly P[];
}

/** Settings of a node's shutdown. */
export interface ShutdownSettings {
  /** KubeletConfiguration.shutdownGracePeriod and shutdownGracePeriodCriticalPods, milliseconds. */
  readonly allMs: number;
  readonly criticalMs: number;
  /** KubeletConfiguration.shutdownGracePeriodByPodPriority: it counts before the other two. */
  readonly byPriority: readonly GracePeriod[];
}

/** Least priority of critical pods, and that of pods without one. */
const systemCritical = 2_000_000_000;
const usual = 0;

/** The node's grace periods, the lowest priority first; none where pods are not ended in order. Pure.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#graceful-node-shutdown */
export function gracePeriods({ allMs, criticalMs, byPriority }: ShutdownSettings): readonly GracePeriod[] {
  if (byPriority.length > 0) return byPriority.toSorted((a, b) => a.priority - b.priority);
  if (allMs === 0) return [];
  return [
    { priority: usual, seconds: Math.floor((allMs - criticalMs) / 1000) },
    { priority: systemCritical, seconds: Math.floor(criticalMs / 1000) },
  ];
}

/** Time that all groups have together, milliseconds. */
export function periodRequestedMs(periods: readonly GracePeriod[]): number {
  return periods.reduce((sum, { seconds }) => sum + seconds, 0) * 1000;
}

/** Pods by group, in the order in which they end. A pod belongs to the group of the highest priority that is not above its own; one
 *  below all belongs to the lowest. Pure. */
export function groupByPriority<P extends Pick<Pod, "spec">>(
  periods: readonly GracePeriod[],
  pods: readonly P[],
): readonly ShutdownGroup<P>[] {
  const groupOf = ({ spec: { priority = usual } }: P) =>
    Math.max(
      0,
      periods.findLastIndex((period) => period.priority <= priority),
    );
  return periods.map((period, index) => ({ ...period, pods: pods.filter((pod) => groupOf(pod) === index) }));
}

/** Grace period of a pod of a group, seconds: its own where that is shorter. */
export function podGraceSeconds({ spec }: Pick<Pod, "spec">, { seconds }: GracePeriod): number {
  return Math.min(spec.terminationGracePeriodSeconds ?? seconds, seconds);
}
