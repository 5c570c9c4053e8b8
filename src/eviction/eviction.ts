import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { EvictionMeasures } from "../measures.ts";
import type { EventSink, PodStore, Presence } from "../pipeline.ts";
import { isCritical } from "../pod/containers.ts";
import { isEnding } from "../pod/phase.ts";
import { podReference } from "../pod/reference.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/rows.ts";
import type { Sends } from "../state/signals.ts";
import { storageExcess, storageLimits } from "./storage-limits.ts";
import { type UsageDeps, createStorageUsage } from "./storage-usage.ts";

export interface EvictionDeps extends UsageDeps {
  readonly pods: Pick<PodStore, "list">;
  readonly worker: Pick<Column<WorkerView>, "get">;
  readonly signals: Sends<"end">;
  readonly events: EventSink;
  readonly presence?: Presence;
  readonly measures: EvictionMeasures;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The kubelet's monitoring period, milliseconds, and the grace period of an evicted pod, seconds. */
const periodMs = 10_000;
/** Factor of the pause after a walk, up to the longest: walks over millions of files load the machine. */
const pauseForWalk = 10;
const longestPauseMs = 300_000;
const graceSeconds = 1;
const reason = "Evicted";

/** Evicts pods that exceed their limits of local storage. Costs nothing while no pod has a limit.
 *  @see https://kubernetes.io/docs/concepts/storage/ephemeral-storage/#resource-emphemeralstorage-consumption */
export function createEviction(deps: EvictionDeps): Service {
  const { pods, worker, signals, events, measures } = deps;
  const measure = createStorageUsage(deps);

  const check = async (signal: AbortSignal) => {
    const limited = pods.list().flatMap((pod) => {
      const limits = isEnding(pod) || isCritical(pod) ? undefined : storageLimits(pod);
      return limits ? [{ pod, limits }] : [];
    });
    if (limited.length === 0) return;
    const usages = await measure(limited, signal);
    for (const [index, { pod, limits }] of limited.entries()) {
      const usage = usages[index];
      const excess = usage && storageExcess(limits, usage);
      if (!excess) continue;
      const { signal: limit, message } = excess;
      const { uid } = pod.metadata;
      // One that ends already is left to its end.
      if (worker.get(uid)?.phase !== "syncing") continue;
      signals.end.send(uid, { graceSeconds, eviction: { reason, message } });
      measures.evicted(limit);
      events.event(podReference(pod), "Warning", reason, message);
    }
  };

  const everyMs = (tookMs: number) => Math.max(periodMs, Math.min(pauseForWalk * tookMs, longestPauseMs));
  return patrol({ ...deps, name: "eviction", everyMs, firstMs: periodMs }, check);
}
