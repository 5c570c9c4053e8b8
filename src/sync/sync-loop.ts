import type { Clock } from "../lib/clock.ts";
import { type SerialQueueHandler, createSerialQueue } from "../lib/serial-queue.ts";
import type { Logger } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import type { Admission, EventSink, PodCache, PodStore, PodUpdate, Rejection } from "../pipeline.ts";
import { isMirrorPod, isStaticPod } from "../pod/containers.ts";
import { isEnding } from "../pod/phase.ts";
import { podFullName, podReference } from "../pod/reference.ts";
import { qosClass } from "../pod/qos.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { DesiredPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import { isActive } from "../state/active.ts";
import type { Column } from "../state/records.ts";
import type { Subscribes, Sends, ResizeTrigger } from "../state/signals.ts";
import type { SourceMilestonePair } from "../state/values.ts";
import type { PodManager } from "./pod-manager.ts";
import type { PodWorkers } from "./pod-workers.ts";
import type { StatusSink, ResizeDecider } from "./ports.ts";
import { type StaticQueue, createStaticQueue } from "./static-queue.ts";

/** Delay of a static pod's status report, so that a pass can adopt the container statuses of its mirror pod first, milliseconds. */
const adoptionDelayMs = 1_000;

/** Delay between checks of a runtime that is not ready, milliseconds. (kubelet, syncLoop) */
const firstRuntimeDelayMs = 100;
const maxRuntimeDelayMs = 5_000;

/** Metrics of pods until they have a worker. */
export interface SyncLoopMeasures {
  /** A source has reported pods for the first time. */
  seen(pods: readonly Pod[]): void;
  /** A pod is gone; its data can be dropped. */
  forget(uid: string): void;
  /** A pod was not admitted. */
  rejected(reason: string): void;
}

export interface SyncLoopDeps {
  readonly manager: Pick<PodManager, "applyUpdate">;
  readonly desired: PodStore;
  readonly worker: Column<WorkerView>;
  readonly workers: PodWorkers;
  readonly admission: Admission;
  /** Problems of the runtime: while there are any, pods wait for their admission. */
  readonly runtimeErrors: () => readonly string[];
  /** True for a pod that is shown as a placeholder: it uses no resources. */
  readonly isPlaceholder: (pod: DesiredPod) => boolean;
  /** Managers whose allocations to a rejected pod are released. */
  readonly managers: readonly Pick<ResourceManager, "release">[];
  readonly resizes: ResizeDecider;
  readonly statuses: StatusSink & { reconcile(pod: DesiredPod, afterMs?: number): void };
  readonly podCache: PodCache;
  readonly events: EventSink;
  /** Sources whose first update has been handled. */
  readonly sourcesSynced: SourceMilestonePair["writer"];
  /** Subscribes to `retryPendingResizes`; `mirrorsChanged` is sent when static pods or mirror pods may have changed, or a source has
   *  reported for the first time. */
  readonly signals: Subscribes<"retryPendingResizes"> & Sends<"wakeWorker" | "mirrorsChanged">;
  readonly measures: SyncLoopMeasures;
  readonly nowText: () => string;
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  readonly log: Logger;
}

/** Queue item: static pods, by UID, that no longer have to wait. */
interface Resumed {
  readonly resumed: readonly string[];
}

/** Queue item: resources may have become free, so pending resizes are retried. */
interface ResourcesFreed {
  readonly freed: ResizeTrigger;
}

type QueueItem = PodUpdate | Resumed | ResourcesFreed;

export type SyncLoop = ReturnType<typeof createSyncLoop>;

/** Dispatches updates of pod sources to pod workers. Pods are admitted here, one at a time and in order of creation,
 *  before they get a worker: decisions on contended resources are never concurrent. */
export function createSyncLoop(deps: SyncLoopDeps) {
  const { manager, desired, workers, worker, sourcesSynced, signals, clock, log } = deps;
  const inbox = createSerialQueue<QueueItem>();
  const staticQueue = createStaticQueue(deps);
  const mirrorSignal = createMirrorSignal(deps);
  const { recordRequests, retryPending } = createResizeRequests(deps);
  /** Time when the loop last began to handle an update, or one of its pods. */
  let enteredAt = clock.monotonic();

  const handle = async (update: QueueItem, signal: AbortSignal) => {
    if ("freed" in update) return retryPending(update.freed, signal);
    if ("resumed" in update) return addAll(stillDesired(desired, update), signal);
    // This precedes the deletion of the pod's record, because its worker must be terminating by then.
    if (update.op === "REMOVE") for (const pod of update.pods) if (!isMirrorPod(pod)) remove(pod);
    manager.applyUpdate(update);
    if (update.op === "ADD") return addAll(update.pods, signal);
    // Decide on the resize before a worker sees the new spec.
    if (update.op === "UPDATE" && recordRequests(update.pods)) await retryPending("pod_updated", signal, update.pods);
    for (const pod of update.pods) {
      if (isMirrorPod(pod)) reconcileStaticPod(deps, pod);
      else if (update.op === "RECONCILE") reconcile(deps, pod);
      else if (update.op === "REMOVE") continue;
      else if (!staticQueue.update(pod) && (worker.get(pod.metadata.uid) || pod.metadata.deletionTimestamp))
        workers.update(pod);
    }
    if (update.op === "REMOVE") await retryPending("pods_removed", signal);
    else if (update.pods.some(isEnding)) await retryPending("pod_terminated", signal);
  };

  const remove = ({ metadata: { uid, deletionGracePeriodSeconds } }: DesiredPod) => {
    // A waiting pod without a worker has never started.
    if (!staticQueue.remove(uid) || worker.get(uid)) workers.terminate(uid, deletionGracePeriodSeconds);
  };

  const untilRuntimeUp = async (signal: AbortSignal) => {
    let delayMs = firstRuntimeDelayMs;
    for (let errors = deps.runtimeErrors(); errors.length > 0; errors = deps.runtimeErrors()) {
      if (delayMs === firstRuntimeDelayMs) log.info({ errors }, "the runtime is not ready; pods are not admitted");
      await clock.sleep(delayMs, signal);
      delayMs = Math.min(2 * delayMs, maxRuntimeDelayMs);
      // Waiting for the runtime is not a stall: the Node's Ready condition reports it.
      enteredAt = clock.monotonic();
    }
  };

  const addAll = async (added: readonly DesiredPod[], signal: AbortSignal) => {
    for (const pod of [...added].sort(byCreation)) {
      enteredAt = clock.monotonic();
      if (!isMirrorPod(pod) && !worker.get(pod.metadata.uid)) await untilRuntimeUp(signal);
      await add(deps, staticQueue, pod, signal).catch((error: unknown) => {
        signal.throwIfAborted();
        // A pod that cannot be added does not keep the next ones from being added.
        log.error({ err: error, pod: podFullName(pod), uid: pod.metadata.uid }, "cannot add pod");
      });
    }
    if (recordRequests(added)) await retryPending("pods_added", signal);
  };

  signals.retryPendingResizes.subscribe((trigger) => inbox.push({ freed: trigger }));
  return {
    name: "sync-loop",
    /** True while a static pod of this UID waits to be added. */
    isWaiting: staticQueue.has,
    /** Adds waiting static pods whose names are free now. */
    resumeWaiting() {
      const free = staticQueue.takeReady();
      if (free.length > 0) inbox.push({ resumed: free.map(({ metadata }) => metadata.uid) });
    },
    /** True if no update is queued or being handled. Otherwise a desired pod may be unknown. */
    isIdle: inbox.isIdle,
    /** True if an update, or one of the pods that it adds, has been handled for longer than this, milliseconds. */
    isStalled: (timeoutMs: number): boolean => !inbox.isIdle() && clock.monotonic() - enteredAt > timeoutMs,
    /** Sends `mirrorsChanged` again once the queue is empty: mirror pods were reconciled too early. */
    requeueMirrorSync: mirrorSignal.requeue,
    /** Enqueues an update; never blocks. */
    push(update: PodUpdate) {
      countPods(update, deps.measures);
      inbox.push(update);
    },
    run(signal: AbortSignal) {
      const work: SerialQueueHandler<QueueItem> = {
        async handle(item) {
          enteredAt = clock.monotonic();
          await handle(item, signal).catch((error: unknown) => {
            const update = "op" in item ? item.op : Object.keys(item)[0];
            if (!signal.aborted) log.error({ err: error, update }, "cannot handle pod update");
          });
        },
        handled(item) {
          if ("source" in item) sourcesSynced.note(item.source);
          mirrorSignal.onHandled(item, !inbox.isIdle());
        },
      };
      return inbox.run(work, signal);
    },
  };
}

/** Counts added and removed pods. */
function countPods({ op, pods }: PodUpdate, measures: SyncLoopMeasures): void {
  if (op === "ADD") measures.seen(pods);
  if (op === "REMOVE") for (const { metadata } of pods) measures.forget(metadata.uid);
}

/** Creates the sync loop's access to resizes of running pods. */
function createResizeRequests(deps: SyncLoopDeps) {
  const { worker, isPlaceholder, signals, resizes } = deps;
  return {
    /** Records the requested resources. @returns true if a resize is pending. */
    recordRequests(updated: readonly DesiredPod[]) {
      const running = updated.filter((pod) => worker.get(pod.metadata.uid)?.phase === "syncing" && !isPlaceholder(pod));
      return running.filter(resizes.recordRequest).length > 0;
    },
    /** Retries pending resizes. @param wokenAnyway pods whose workers are woken in any case. */
    async retryPending(trigger: ResizeTrigger, signal: AbortSignal, wokenAnyway: readonly DesiredPod[] = []) {
      for (const uid of await resizes.retryPending(() => admitted(deps), trigger, signal))
        if (!wokenAnyway.some(({ metadata }) => metadata.uid === uid)) signals.wakeWorker.send(uid, "config");
    },
  };
}

/** Adds a pod: it gets a worker, is rejected, or waits in the static queue. */
async function add(deps: SyncLoopDeps, staticQueue: StaticQueue, pod: DesiredPod, signal: AbortSignal): Promise<void> {
  const { worker, workers, isPlaceholder } = deps;
  if (isMirrorPod(pod)) return handleMirrorPodAdd(deps, pod);
  if (isStaticPod(pod) && staticQueue.enqueueIfBlocked(pod)) return;
  const skipsAdmission = isEnding(pod) || worker.get(pod.metadata.uid) !== undefined || isPlaceholder(pod);
  const rejection = skipsAdmission ? undefined : await admit(deps, pod, signal);
  if (!rejection) return workers.update(pod);
  deps.measures.rejected(rejection.reason);
  reject(deps, pod, rejection);
}

/** Admits a pod with its previous allocation, if any. */
function admit(deps: SyncLoopDeps, pod: DesiredPod, signal: AbortSignal): Promise<Rejection | undefined> {
  const { resizes, admission } = deps;
  resizes.addPod(pod);
  return admission.admit(resizes.allocatedPod(pod), admitted(deps).map(resizes.effectivePod), signal);
}

/** Returns the resumed pods, without pods that were removed meanwhile. */
function stillDesired(pods: PodStore, { resumed }: Resumed): readonly DesiredPod[] {
  return resumed.flatMap((uid) => pods.get(uid) ?? []);
}

function createMirrorSignal({ signals }: SyncLoopDeps) {
  let isPending = false;
  return {
    /** Sends `mirrorsChanged` once the queue is empty, regardless of its items. */
    requeue: () => void (isPending = true),
    /** Sends `mirrorsChanged` for a handled item at once, and again once the queue is empty: only then are unwanted mirror pods
     *  known. @param more the queue is not empty. */
    onHandled(item: QueueItem, more: boolean) {
      isPending ||= affectsMirrorPods(item);
      if (!isPending) return;
      isPending = more;
      signals.mirrorsChanged.send();
    },
  };
}

/** True if mirror pods may have to change because of the item. An ADD may be the first report of a source. */
function affectsMirrorPods(item: QueueItem): boolean {
  if ("freed" in item) return false;
  return "resumed" in item || item.op === "ADD" || item.pods.some((pod) => isMirrorPod(pod) || isStaticPod(pod));
}

function reconcile({ statuses, worker, workers }: SyncLoopDeps, pod: DesiredPod): void {
  statuses.reconcile(pod);
  if (worker.get(pod.metadata.uid) && (isEnding(pod) || pod.spec.readinessGates?.length)) workers.update(pod);
}

/** Writes the status of a static pod again after its mirror pod has been added, changed or deleted. */
function reconcileStaticPod({ desired, statuses }: SyncLoopDeps, { metadata: { namespace, name } }: DesiredPod): void {
  const pod = desired.byName(namespace, name);
  if (pod && isStaticPod(pod)) statuses.reconcile(pod);
}

/** Handles an added mirror pod. After a restart it has the last container statuses: a pass adopts them before the status is written. */
function handleMirrorPodAdd(deps: SyncLoopDeps, mirror: DesiredPod): void {
  const { desired, worker, signals, statuses } = deps;
  const pod = desired.byName(mirror.metadata.namespace, mirror.metadata.name);
  const isKnown = pod && isStaticPod(pod) && worker.get(pod.metadata.uid)?.phase === "syncing";
  if (!isKnown || !mirror.status?.containerStatuses?.length) return reconcileStaticPod(deps, mirror);
  signals.wakeWorker.send(pod.metadata.uid, "config");
  statuses.reconcile(pod, adoptionDelayMs);
}

/** Returns the admitted pods that hold resources. */
function admitted({ worker, desired, podCache, isPlaceholder }: SyncLoopDeps): readonly DesiredPod[] {
  return worker.entries().flatMap(([uid, view]) => {
    const pod = desired.get(uid);
    return pod && isActive(pod, view, podCache.get(uid)) && !isPlaceholder(pod) ? [pod] : [];
  });
}

/** Rejects a pod: it is Failed and gets no worker, unless it runs already (it was admitted before a restart): then it is terminated. */
function reject(
  { log, events, statuses, podCache, workers, managers, nowText }: SyncLoopDeps,
  pod: DesiredPod,
  { reason, message }: Rejection,
): void {
  log.info({ pod: podFullName(pod), reason }, "rejected pod");
  events.event(podReference(pod), "Warning", reason, message);
  const qos = pod.status?.qosClass ?? qosClass(pod.spec);
  // The status manager delays the final phase until the worker has terminated the pod.
  const runs = podCache.get(pod.metadata.uid) !== undefined;
  if (runs) workers.update({ ...pod, status: { ...pod.status, phase: "Failed" } });
  statuses.set(pod, {
    phase: "Failed",
    reason,
    message: `Pod was rejected: ${message}`,
    qosClass: qos,
    startTime: nowText(),
  });
  if (runs) return;
  for (const manager of managers) manager.release(pod.metadata.uid);
  statuses.terminated(pod);
}

function byCreation(a: DesiredPod, b: DesiredPod): number {
  return (a.metadata.creationTimestamp ?? "").localeCompare(b.metadata.creationTimestamp ?? "");
}
