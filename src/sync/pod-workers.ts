import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Tracer } from "../lib/tracer.ts";
import { createTurns } from "../lib/turns.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import type { WorkerMeasures } from "../measures.ts";
import type { Presence } from "../pipeline.ts";
import type { AskedPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { ColumnWriter } from "../state/rows.ts";
import type { Hears, Sends } from "../state/signals.ts";
import { type Passes, type PodWorker, createPodWorker } from "./pod-worker.ts";

export interface PodWorkersDeps {
  readonly passes: Passes;
  /** Column written by the workers. */
  readonly worker: ColumnWriter<WorkerView>;
  /** Subscribes to `wake`, `retry` and `end`; `mirrorsChanged` is sent when a worker has finished. */
  readonly signals: Hears<"wake" | "retry" | "end"> & Sends<"mirrorsChanged">;
  readonly presence?: Presence;
  readonly clock: Clock;
  readonly log: Logger;
  readonly measures: WorkerMeasures;
  readonly tracer: Tracer;
  readonly stop: AbortSignal;
}

/** Limit of concurrent retries: a runtime that has just come back has other callers, too. */
const parallelRetries = 20;
const secondTryMs = 1_000;

/** The pod workers of a node, by UID. Workers run independently. */
export interface PodWorkers {
  /** Passes the latest version of a pod to its worker; creates the worker if there is none. */
  update(pod: AskedPod): void;
  /** Terminates a pod. A pod that only the runtime knows gets a worker for that. */
  terminate(uid: string, graceSeconds: number | undefined): void;
  /** Drops a finished worker. */
  forget(uid: string): void;
  /** Resolves when all workers are idle. */
  idle(): Promise<void>;
}

export function createPodWorkers(deps: PodWorkersDeps): PodWorkers {
  const { clock, stop, worker: column, signals } = deps;
  const workers = new Map<string, PodWorker>();
  const unsettled = new Set<string>();
  const passes = settling(deps.passes, unsettled);
  const retryTurn = createTurns(parallelRetries);
  const queue = createWorkQueue(clock, (uid) => workers.get(uid)?.wake("resync"));
  stop.addEventListener("abort", () => queue.stop(), { once: true });
  const workerFor = (uid: string) => {
    const known = workers.get(uid);
    if (known) return known;
    const publish = (view: WorkerView) => {
      // A forgotten worker must not write its record again.
      if (workers.get(uid) !== made) return;
      const before = column.get(uid)?.phase;
      column.set(uid, view);
      if (view.phase === "finished" && before !== "finished") signals.mirrorsChanged.send();
    };
    const later = (key: string, ms: number) => void (stop.aborted || queue.add(key, ms));
    const made: PodWorker = createPodWorker({ ...deps, passes, uid, publish, later });
    workers.set(uid, made);
    column.set(uid, { phase: "syncing", pod: undefined });
    return made;
  };
  const retry = async (uid: string) => {
    if (stop.aborted || !unsettled.has(uid)) return;
    workers.get(uid)?.wake("resync");
    await workers.get(uid)?.idle();
    // A runtime may respond before it can serve every request.
    if (unsettled.has(uid) && !stop.aborted) queue.add(uid, secondTryMs);
  };
  signals.wake.heard((uid, cause) => workers.get(uid)?.wake(cause));
  signals.retry.heard(() => {
    for (const uid of unsettled) void retryTurn(() => retry(uid));
  });
  signals.end.heard((uid, { graceSeconds, eviction }) => workers.get(uid)?.terminate(graceSeconds, eviction));
  return {
    update: (pod) => workerFor(pod.metadata.uid).update(pod),
    terminate: (uid, graceSeconds) => workerFor(uid).terminate(graceSeconds),
    forget(uid) {
      queue.drop(uid);
      unsettled.delete(uid);
      workers.delete(uid);
      column.delete(uid);
    },
    idle: async () => void (await Promise.all([...workers.values()].map((worker) => worker.idle()))),
  };
}

/** Wraps the passes. @param unsettled collects the UIDs of pods whose last pass failed or is still running. */
function settling(passes: Passes, unsettled: Set<string>): Passes {
  const settled = async <T extends { readonly error?: unknown } | void>(uid: string, pass: Promise<T>): Promise<T> => {
    unsettled.add(uid);
    const outcome = await pass;
    if (outcome?.error === undefined) unsettled.delete(uid);
    return outcome;
  };
  return {
    ...passes,
    sync: (pod, signal) => settled(pod.metadata.uid, passes.sync(pod, signal)),
    terminating: (uid, ...more) => settled(uid, passes.terminating(uid, ...more)),
    terminated: (uid, ...more) => settled(uid, passes.terminated(uid, ...more)),
  };
}
