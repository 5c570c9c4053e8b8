import type { Pod } from "../objects.ts";
import type { StatusReader } from "../pipeline.ts";
import { isPlaceholder } from "./placeholder.ts";

/** The placeholders of one DaemonSet on a node. */
export interface PlaceholderCount {
  readonly namespace: string;
  /** The DaemonSet; empty for pods that have lost theirs. */
  readonly daemonSet: string;
  readonly pods: number;
}

/** Counts a node's placeholders by DaemonSet, sorted by namespace and name. Pure.
 *  @param pods the node's pods. @param statuses their latest statuses, which take precedence over those in the objects. */
export function countPlaceholders(pods: readonly Pod[], statuses: StatusReader): readonly PlaceholderCount[] {
  const counts = new Map<string, PlaceholderCount>();
  for (const { metadata, status } of pods) {
    if (!isPlaceholder(statuses.get(metadata.uid) ?? status)) continue;
    const daemonSet = metadata.ownerReferences?.find(({ controller }) => controller)?.name ?? "";
    const key = `${metadata.namespace}/${daemonSet}`;
    const before = counts.get(key)?.pods ?? 0;
    counts.set(key, { namespace: metadata.namespace, daemonSet, pods: before + 1 });
  }
  return [...counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, count]) => count);
}
