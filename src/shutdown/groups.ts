import type { Pod } from "../objects.ts";

/** Time for pods of at least this priority to end when their node shuts down. */
export interface GracePeriod {
  readonly priority: number;
  readonly seconds: number;
}

/** Pods that end at the same time. */
export interface ShutdownGroup<P> extends GracePeriod {
  readonly pods: readonly P[];
}

export interface ShutdownSettings {
  /** KubeletConfiguration.shutdownGracePeriod and shutdownGracePeriodCriticalPods, milliseconds. */
  readonly allMs: number;
  readonly criticalMs: number;
  /** KubeletConfiguration.shutdownGracePeriodByPodPriority: takes precedence over the other two. */
  readonly byPriority: readonly GracePeriod[];
}

/** Minimum priority of critical pods, and the default priority. */
const systemCriticalPriority = 2_000_000_000;
const defaultPriority = 0;

/** The node's grace periods, lowest priority first; empty if graceful node shutdown is off. Pure.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#graceful-node-shutdown */
export function gracePeriods({ allMs, criticalMs, byPriority }: ShutdownSettings): readonly GracePeriod[] {
  if (byPriority.length > 0) return byPriority.toSorted((a, b) => a.priority - b.priority);
  if (allMs === 0) return [];
  return [
    { priority: defaultPriority, seconds: Math.floor((allMs - criticalMs) / 1000) },
    { priority: systemCriticalPriority, seconds: Math.floor(criticalMs / 1000) },
  ];
}

/** Total time of all groups, milliseconds. */
export function totalGracePeriodMs(periods: readonly GracePeriod[]): number {
  return periods.reduce((sum, { seconds }) => sum + seconds, 0) * 1000;
}

/** Pods by group, in the order in which they end. A pod belongs to the group with the highest priority not above its own, or to the lowest
 *  group if there is none. Pure. */
export function groupByPriority<P extends Pick<Pod, "spec">>(
  periods: readonly GracePeriod[],
  pods: readonly P[],
): readonly ShutdownGroup<P>[] {
  const groupOf = ({ spec: { priority = defaultPriority } }: P) =>
    Math.max(
      0,
      periods.findLastIndex((period) => period.priority <= priority),
    );
  return periods.map((period, index) => ({ ...period, pods: pods.filter((pod) => groupOf(pod) === index) }));
}

/** Grace period of a pod, seconds: its own, at most its group's. */
export function podGraceSeconds({ spec }: Pick<Pod, "spec">, { seconds }: GracePeriod): number {
  return Math.min(spec.terminationGracePeriodSeconds ?? seconds, seconds);
}
