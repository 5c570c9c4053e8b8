import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import type { Pod } from "../objects.ts";
import type { WorkerMeasures } from "../measures.ts";
import { createTurns } from "../lib/turns.ts";
import type { PodEvictor, PodPreemptor, Presence, Retrier, Waker } from "../pipeline.ts";
import { type Passes, type PodWorker, createPodWorker } from "./pod-worker.ts";

export interface PodWorkersDeps {
  readonly passes: Passes;
  readonly presence?: Presence;
  readonly clock: Clock;
  readonly log: Logger;
  readonly measures: WorkerMeasures;
  /** A worker has finished. */
  readonly finished?: () => void;
  readonly stop: AbortSignal;
}

/** Pods tried again side by side: a runtime that has just come back has to serve others, too. */
const parallelRetries = 20;
const secondTryMs = 1_000;

/** The pod workers of a node, by UID. Pods do not wait for each other. */
export interface PodWorkers extends Waker, Retrier, PodEvictor, PodPreemptor {
  get(uid: string): PodWorker | undefined;
  list(): readonly { readonly uid: string; readonly worker: PodWorker }[];
  /** The newest version of a pod; a worker is made for one that has none. */
  update(pod: Pod): void;
  /** Ends a pod, known or not: one that only the runtime has gets a worker to take it down. */
  terminate(uid: string, graceSeconds: number | undefined): void;
  /** Drops a finished worker. */
  forget(uid: string): void;
  /** Resolves when no worker does anything. */
  idle(): Promise<void>;
}

export function createPodWorkers(deps: PodWorkersDeps): PodWorkers {
  const { clock, stop } = deps;
  const workers = new Map<string, PodWorker>();
  const unsettled = new Set<string>();
  const passes = settling(deps.passes, unsettled);
  const retryTurn = createTurns(parallelRetries);
  const queue = createWorkQueue(clock, (uid) => workers.get(uid)?.wake("resync"));
  stop.addEventListener("abort", () => queue.stop(), { once: true });
  const workerFor = (uid: string) => {
    const known = workers.get(uid);
    if (known) return known;
    const made = createPodWorker({
      ...deps,
      passes,
      uid,
      later: (key, ms) => void (stop.aborted || queue.add(key, ms)),
    });
    workers.set(uid, made);
    return made;
  };
  return {
    get: (uid) => workers.get(uid),
    list: () => [...workers].map(([uid, worker]) => ({ uid, worker })),
    update: (pod) => workerFor(pod.metadata.uid).update(pod),
    wake: (uid, cause) => workers.get(uid)?.wake(cause),
    retryFailed() {
      const retry = async (uid: string) => {
        if (stop.aborted || !unsettled.has(uid)) return;
        workers.get(uid)?.wake("resync");
        await workers.get(uid)?.idle();
        // A runtime answers before it can do all that it is asked for.
        if (unsettled.has(uid) && !stop.aborted) queue.add(uid, secondTryMs);
      };
      for (const uid of unsettled) void retryTurn(() => retry(uid));
    },
    evict(uid, why, graceSeconds) {
      const worker = workers.get(uid);
      if (worker?.phase !== "syncing" || !worker.pod) return false;
      worker.terminate(graceSeconds, why);
      return true;
    },
    async preempt(uid, why) {
      const worker = workers.get(uid);
      worker?.terminate(undefined, why);
      await worker?.stopped();
    },
    terminate: (uid, graceSeconds) => workerFor(uid).terminate(graceSeconds),
    forget(uid) {
      queue.drop(uid);
      unsettled.delete(uid);
      workers.delete(uid);
    },
    idle: async () => void (await Promise.all([...workers.values()].map((worker) => worker.idle()))),
  };
}

/** The same passes. @param unsettled gets the UIDs of pods of which the last pass failed, or is under way and may yet fail. */
function settling(passes: Passes, unsettled: Set<string>): Passes {
  const settled = async <T extends { readonly failed?: boolean } | void>(uid: string, pass: Promise<T>): Promise<T> => {
    unsettled.add(uid);
    const outcome = await pass;
    if (outcome?.failed !== true) unsettled.delete(uid);
    return outcome;
  };
  return {
    ...passes,
    sync: (pod, signal) => settled(pod.metadata.uid, passes.sync(pod, signal)),
    terminating: (uid, ...more) => settled(uid, passes.terminating(uid, ...more)),
    terminated: (uid, ...more) => settled(uid, passes.terminated(uid, ...more)),
  };
}
