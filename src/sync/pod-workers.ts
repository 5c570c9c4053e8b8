import type { ClockAndLog } from "../lib/log.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import type { DesiredPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { ColumnWriter } from "../state/records.ts";
import type { Subscribes, Sends } from "../state/signals.ts";
import { type PodWorker, createPodWorker, type PodWorkerDeps } from "./pod-worker.ts";
import type { Clock } from "../lib/clock.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";

export interface PodWorkersDeps
  extends Pick<PodWorkerDeps, "passes" | "waitForTarget" | "measures" | "tracer" | "stop">,
    ClockAndLog {
  readonly worker: ColumnWriter<WorkerView>;
  /** The workers react to the subscribed signals; `mirrorsChanged` is sent when a worker has finished. */
  readonly signals: Subscribes<"wakeWorker" | "retryFailedPods" | "terminatePod"> & Sends<"mirrorsChanged">;
}

/** Limit of concurrent retries, so that they do not overload a runtime that has just come back. */
const maxParallelRetries = 20;
const secondRetryDelayMs = 1_000;

/** The pod workers of a node, by UID. Workers run independently. */
export type PodWorkers = ReturnType<typeof createPodWorkers>;

export function createPodWorkers(deps: PodWorkersDeps) {
  const { clock, stop, worker: column, signals } = deps;
  const workers = new Map<string, PodWorker>();
  const retrySemaphore = createSemaphore(maxParallelRetries);
  const queue = createWorkQueue(clock, (uid) => workers.get(uid)?.wake("resync"));
  stop.addEventListener("abort", () => queue.stop(), { once: true });
  const workerFor = (uid: string) => {
    const known = workers.get(uid);
    if (known) return known;
    const publish = (view: WorkerView) => {
      // A worker that was dropped must not write its record again.
      if (workers.get(uid) !== created) return;
      const before = column.get(uid)?.phase;
      column.set(uid, view);
      if (view.phase === "finished" && before !== "finished") signals.mirrorsChanged.send();
    };
    const requeueAfter = (key: string, ms: number) => void (stop.aborted || queue.add(key, ms));
    const created: PodWorker = createPodWorker({ ...deps, uid, publish, requeueAfter });
    workers.set(uid, created);
    column.set(uid, { phase: "syncing", pod: undefined });
    return created;
  };
  const isFailing = (uid: string) => workers.get(uid)?.isFailing() ?? false;
  const retry = async (uid: string) => {
    if (stop.aborted || !isFailing(uid)) return;
    workers.get(uid)?.wake("resync");
    await workers.get(uid)?.idle();
    // A runtime may respond before it can serve every request.
    if (isFailing(uid) && !stop.aborted) queue.add(uid, secondRetryDelayMs);
  };
  signals.wakeWorker.subscribe((uid, cause) => workers.get(uid)?.wake(cause));
  signals.retryFailedPods.subscribe(() => {
    for (const uid of workers.keys()) if (isFailing(uid)) void retrySemaphore(() => retry(uid));
  });
  signals.terminatePod.subscribe((uid, { graceSeconds, eviction }) =>
    workers.get(uid)?.terminate(graceSeconds, eviction),
  );
  return {
    /** Passes the latest version of a pod to its worker; creates the worker if there is none. */
    update: (pod: DesiredPod) => workerFor(pod.metadata.uid).update(pod),
    /** Terminates a pod. A pod that only the runtime knows gets a worker for that. */
    terminate: (uid: string, graceSeconds: number | undefined) => workerFor(uid).terminate(graceSeconds),
    /** Drops a finished worker. */
    forget(uid: string) {
      queue.drop(uid);
      workers.delete(uid);
      column.delete(uid);
    },
    /** Resolves when all workers are idle. */
    idle: async (): Promise<void> => void (await Promise.all([...workers.values()].map((worker) => worker.idle()))),
  };
}

/** Time for running calls to the runtime to finish when the node stops, milliseconds. */
const drainTimeoutMs = 20_000;

/** When the node stops: aborts the workers' passes and waits for calls to the runtime that must not be interrupted.
 *  @param passes aborts the passes. */
export function createWorkersService(
  workers: Pick<PodWorkers, "idle">,
  passes: AbortController,
  clock: Pick<Clock, "sleep">,
): Runnable {
  return {
    name: "pod-workers",
    async run(signal) {
      await onAbort(signal);
      passes.abort();
      const patience = new AbortController();
      await Promise.race([workers.idle(), clock.sleep(drainTimeoutMs, patience.signal).catch(() => undefined)]);
      patience.abort();
    },
  };
}
