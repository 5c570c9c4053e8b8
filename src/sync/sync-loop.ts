import type { Logger } from "../lib/log.ts";
import type { Service } from "../lib/service-group.ts";
import type { Pod } from "../objects.ts";
import type { Admission, EventSink, PodCache, PodUpdate, Rejection, StatusSink } from "../pipeline.ts";
import { isMirrorPod, isStaticPod } from "../pod/containers.ts";
import { podReference } from "../pod/reference.ts";
import { qosClass } from "../pod/qos.ts";
import type { PodManager } from "./pod-manager.ts";
import type { PodWorkers } from "./pod-workers.ts";
import { isEnding } from "./pod-worker.ts";
import { createStaticQueue } from "./static-queue.ts";

export interface SyncLoopDeps {
  readonly pods: PodManager;
  readonly workers: PodWorkers;
  readonly admission: Admission;
  readonly status: StatusSink & { reconcile(pod: Pod): void };
  readonly cache: PodCache;
  readonly events: EventSink;
  /** Static pods or mirror pods may have come, changed, begun or gone, or a source has spoken for the first time. */
  readonly mirrorsChanged?: () => void;
  readonly nowText: () => string;
  readonly log: Logger;
}

/** UIDs of pods that need wait no longer. */
interface Resumed {
  readonly resumed: readonly string[];
}

export interface SyncLoop extends Service {
  /** Takes an update in; never waits. */
  push(update: PodUpdate): void;
  /** A pod of this UID waits to be taken in. */
  waits(uid: string): boolean;
  /** Takes in the static pods that waited and whose name is free now. */
  resume(): void;
  /** False while an update waits or is being handled: until then a pod may be wanted that nobody has heard of yet. */
  caughtUp(): boolean;
}

/** Turns what sources say into work for pod workers. Admission is decided here, one pod at a time and in order of creation,
 *  before a pod gets a worker: what pods compete for is never decided side by side. */
export function createSyncLoop(deps: SyncLoopDeps): SyncLoop {
  const { pods, workers, log } = deps;
  const queue: (PodUpdate | Resumed)[] = [];
  const waiting = createStaticQueue(deps);
  const tellMirrors = createMirrorNews(deps);
  let wakeUp = Promise.withResolvers<void>();
  let busy = false;

  const push = (update: PodUpdate | Resumed) => {
    queue.push(update);
    wakeUp.resolve();
  };

  const handle = async (update: PodUpdate | Resumed, signal: AbortSignal) => {
    if ("resumed" in update) return addAll(wantedStill(update), signal);
    pods.take(update);
    if (update.op === "ADD") return addAll(update.pods, signal);
    for (const pod of update.pods) {
      if (isMirrorPod(pod)) reconcileShown(deps, pod);
      else if (update.op === "RECONCILE") reconcile(deps, pod);
      else if (update.op === "REMOVE") remove(pod);
      else if (!waiting.update(pod) && (workers.get(pod.metadata.uid) || pod.metadata.deletionTimestamp))
        workers.update(pod);
    }
  };

  /** One that was taken away meanwhile is not there any more. */
  const wantedStill = ({ resumed }: Resumed) => resumed.flatMap((uid) => pods.get(uid) ?? []);

  const remove = ({ metadata: { uid, deletionGracePeriodSeconds } }: Pod) => {
    // One that waited has never begun.
    if (!waiting.drop(uid) || workers.get(uid)) workers.terminate(uid, deletionGracePeriodSeconds);
  };

  const addAll = async (added: readonly Pod[], signal: AbortSignal) => {
    for (const pod of [...added].sort(byCreation)) {
      if (isMirrorPod(pod)) {
        reconcileShown(deps, pod);
        continue;
      }
      if (isStaticPod(pod) && waiting.hold(pod)) continue;
      const decided = isEnding(pod) || workers.get(pod.metadata.uid) !== undefined;
      const rejection = decided ? undefined : await deps.admission.admit(pod, admitted(deps), signal);
      if (rejection) reject(deps, pod, rejection);
      else workers.update(pod);
    }
  };

  return {
    name: "sync-loop",
    waits: waiting.has,
    resume() {
      const free = waiting.free();
      if (free.length > 0) push({ resumed: free.map(({ metadata }) => metadata.uid) });
    },
    caughtUp: () => queue.length === 0 && !busy,
    push,
    async run(signal) {
      signal.addEventListener("abort", () => wakeUp.resolve(), { once: true });
      while (!signal.aborted) {
        const update = queue.shift();
        if (update) {
          busy = true;
          await handle(update, signal).catch((error: unknown) => {
            if (!signal.aborted)
              log.error({ err: error, update: "op" in update ? update.op : "resumed" }, "update could not be handled");
          });
          busy = false;
          tellMirrors(update, queue.length > 0);
        } else {
          wakeUp = Promise.withResolvers<void>();
          if (queue.length === 0 && !signal.aborted) await wakeUp.promise;
        }
      }
    },
  };
}

/** Tells of an update that was handled at once, and again when all is handled that came meanwhile: only then is known what nobody
 *  wants. */
function createMirrorNews({ mirrorsChanged }: SyncLoopDeps): (handled: PodUpdate | Resumed, more: boolean) => void {
  let news = false;
  return (handled, more) => {
    news ||= concernsMirrors(handled);
    if (!news) return;
    news = more;
    mirrorsChanged?.();
  };
}

/** Whether mirror pods may have to follow what was handled. What was added first may be all that a source has to say. */
function concernsMirrors(update: PodUpdate | Resumed): boolean {
  return "resumed" in update || update.op === "ADD" || update.pods.some((pod) => isMirrorPod(pod) || isStaticPod(pod));
}

function reconcile({ status, workers }: SyncLoopDeps, pod: Pod): void {
  status.reconcile(pod);
  const worker = workers.get(pod.metadata.uid);
  if (worker && (isEnding(pod) || pod.spec.readinessGates?.length)) worker.update(pod);
}

/** What the API server shows of a static pod has come, gone or changed: it should show the pod's status. */
function reconcileShown({ pods, status }: SyncLoopDeps, { metadata: { namespace, name } }: Pod): void {
  const pod = pods.byName(namespace, name);
  if (pod && isStaticPod(pod)) status.reconcile(pod);
}

/** Pods that hold resources: admitted and not yet at their end. */
function admitted({ workers, pods }: SyncLoopDeps): readonly Pod[] {
  return workers.list().flatMap(({ uid, worker }) => {
    const pod = pods.get(uid);
    return pod && (worker.phase === "syncing" || worker.phase === "terminating") ? [pod] : [];
  });
}

/** A refused pod is Failed for good and gets no worker; one that runs already (it was admitted before a restart) is ended. */
function reject(
  { log, events, status, cache, workers, nowText }: SyncLoopDeps,
  pod: Pod,
  { reason, message }: Rejection,
): void {
  log.info({ pod: `${pod.metadata.namespace}/${pod.metadata.name}`, reason }, "pod refused");
  events.event(podReference(pod), "Warning", reason, message);
  const qos = pod.status?.qosClass ?? qosClass(pod.spec);
  status.set(pod, {
    phase: "Failed",
    reason,
    message: `Pod was rejected: ${message}`,
    qosClass: qos,
    startTime: nowText(),
  });
  if (cache.get(pod.metadata.uid)) workers.update({ ...pod, status: { ...pod.status, phase: "Failed" } });
  else status.terminated(pod);
}

function byCreation(a: Pod, b: Pod): number {
  return (a.metadata.creationTimestamp ?? "").localeCompare(b.metadata.creationTimestamp ?? "");
}
