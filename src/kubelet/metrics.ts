import type { Measures } from "../measures.ts";
import type { NodeView } from "../metrics/view.ts";
import type { Admission, PodCache, PodStore, PodUpdate, VolumeGate } from "../pipeline.ts";
import type { PodWorkers } from "../sync/pod-workers.ts";

// What is counted between stages, where they are put together: no stage has to know of it.

/** Notes which pods come and go. */
export function followPods({ op, pods }: PodUpdate, measures: Measures): void {
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

/** A pod that the runtime has and no worker knows is taken down by a worker that is made for it. */
export function countOrphans(workers: PodWorkers, cache: PodCache, measures: Measures): PodWorkers {
  return {
    ...workers,
    terminate(uid, graceSeconds) {
      if (!workers.get(uid) && cache.get(uid)) measures.orphanFound();
      workers.terminate(uid, graceSeconds);
    },
  };
}

interface Shown {
  readonly pods: PodStore & Pick<NodeView, "mirrors">;
  readonly cache: PodCache;
  readonly workers: PodWorkers;
  readonly volumes: Pick<VolumeGate, "mounted">;
  readonly resizes: { counts: NodeView["resizes"] };
}

/** The node's pods, for gauges. */
export function podView({
  pods,
  cache,
  workers,
  volumes,
  resizes,
}: Shown): Pick<NodeView, "pods" | "mirrors" | "cache" | "workers" | "mounted" | "resizes"> {
  return {
    pods,
    mirrors: pods.mirrors,
    cache,
    workers: () => workers.list().map(({ uid, worker: { phase, pod } }) => ({ uid, phase, pod })),
    mounted: volumes.mounted,
    resizes: resizes.counts,
  };
}
