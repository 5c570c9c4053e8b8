import type { Measures } from "../metrics/node-metrics.ts";
import type { Admission, PodCache, PodUpdate } from "../pipeline.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { PodWorkers } from "../sync/pod-workers.ts";

// Metrics between stages, counted where stages are composed, so that no stage has to know of them.

/** Counts added and removed pods. */
export function countPods({ op, pods }: PodUpdate, measures: Measures): void {
  if (op === "ADD") measures.seen(pods);
  if (op === "REMOVE") for (const { metadata } of pods) measures.forget(metadata.uid);
}

export function countRejections(admission: Admission, measures: Measures): Admission {
  return {
    async admit(pod, others, signal) {
      const rejection = await admission.admit(pod, others, signal);
      if (rejection) measures.rejected(rejection.reason);
      return rejection;
    },
  };
}

interface KnownPods {
  readonly worker: Column<WorkerView>;
  readonly cache: PodCache;
}

/** Counts terminations of orphans: pods in the runtime without a worker. */
export function countOrphans(
  workers: Pick<PodWorkers, "terminate" | "forget">,
  { worker, cache }: KnownPods,
  measures: Measures,
): Pick<PodWorkers, "terminate" | "forget"> {
  return {
    ...workers,
    terminate(uid, graceSeconds) {
      if (!worker.get(uid) && cache.get(uid)) measures.orphanFound();
      workers.terminate(uid, graceSeconds);
    },
  };
}
