import { type InboxWork, createInbox } from "../lib/inbox.ts";
import type { Logger } from "../lib/log.ts";
import type { Service } from "../lib/service-group.ts";
import type { Admission, EventSink, PodCache, PodStore, PodUpdate, Rejection, StatusSink } from "../pipeline.ts";
import { isMirrorPod, isStaticPod } from "../pod/containers.ts";
import { isEnding } from "../pod/phase.ts";
import { fullName, podReference } from "../pod/reference.ts";
import { qosClass } from "../pod/qos.ts";
import type { ResizeDecider, ResizeTrigger } from "../resizes.ts";
import type { AskedPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import { isActive } from "../state/active.ts";
import type { Column } from "../state/rows.ts";
import type { Hears, Sends } from "../state/signals.ts";
import type { SourceMarksPair } from "../state/cells.ts";
import type { PodManager } from "./pod-manager.ts";
import type { PodWorkers } from "./pod-workers.ts";
import { type StaticQueue, createStaticQueue } from "./static-queue.ts";

/** Delay of a static pod's status report, to let a pass adopt the container statuses of its mirror pod first, milliseconds. */
const takeOverMs = 1_000;

export interface SyncLoopDeps {
  readonly manager: Pick<PodManager, "take">;
  readonly pods: PodStore;
  readonly worker: Column<WorkerView>;
  readonly workers: PodWorkers;
  readonly admission: Admission;
  /** True for a pod that is shown as a placeholder: it uses no resources. */
  readonly standsFor: (pod: AskedPod) => boolean;
  readonly resizes: ResizeDecider;
  readonly status: StatusSink & { reconcile(pod: AskedPod, afterMs?: number): void };
  readonly cache: PodCache;
  readonly events: EventSink;
  /** Sources whose first update has been handled. */
  readonly takenIn: SourceMarksPair["writer"];
  /** Subscribes to `retryPendingResizes`; `mirrorsChanged` is sent when static pods or mirror pods may have changed, or a source has
   *  reported for the first time. */
  readonly signals: Hears<"weigh"> & Sends<"wake" | "mirrorsChanged">;
  readonly nowText: () => string;
  readonly log: Logger;
}

/** UIDs of static pods that need not wait any longer. */
interface Resumed {
  readonly resumed: readonly string[];
}

/** Resources may have become free. */
interface Freed {
  readonly freed: ResizeTrigger;
}

type Item = PodUpdate | Resumed | Freed;

export interface SyncLoop extends Service {
  /** Enqueues an update; never blocks. */
  push(update: PodUpdate): void;
  /** True while a static pod of this UID waits to be added. */
  waits(uid: string): boolean;
  /** Adds waiting static pods whose names are free now. */
  resume(): void;
  /** True if no update is queued or being handled. Otherwise a desired pod may be unknown. */
  caughtUp(): boolean;
  /** Sends `mirrorsChanged` again once the queue is empty: mirror pods were reconciled too early. */
  oweMirrors(): void;
}

/** Dispatches updates of pod sources to pod workers. Pods are admitted here, one at a time and in order of creation,
 *  before they get a worker: decisions on contended resources are never concurrent. */
export function createSyncLoop(deps: SyncLoopDeps): SyncLoop {
  const { manager, pods, workers, worker, takenIn, signals, log } = deps;
  const inbox = createInbox<Item>();
  const waiting = createStaticQueue(deps);
  const mirrorNews = createMirrorNews(deps);
  const { asked, decide } = createWeighing(deps);

  const handle = async (update: Item, signal: AbortSignal) => {
    if ("freed" in update) return decide(update.freed, signal);
    if ("resumed" in update) return addAll(wantedStill(pods, update), signal);
    // Before the pod's record is deleted: its worker must be terminating by then.
    if (update.op === "REMOVE") for (const pod of update.pods) if (!isMirrorPod(pod)) remove(pod);
    manager.take(update);
    if (update.op === "ADD") return addAll(update.pods, signal);
    // The resize is decided before a worker sees the new spec.
    if (update.op === "UPDATE" && asked(update.pods)) await decide("pod_updated", signal, update.pods);
    for (const pod of update.pods) {
      if (isMirrorPod(pod)) reconcileShown(deps, pod);
      else if (update.op === "RECONCILE") reconcile(deps, pod);
      else if (update.op === "REMOVE") continue;
      else if (!waiting.update(pod) && (worker.get(pod.metadata.uid) || pod.metadata.deletionTimestamp))
        workers.update(pod);
    }
    if (update.op === "REMOVE") await decide("pods_removed", signal);
    else if (update.pods.some(isEnding)) await decide("pod_terminated", signal);
  };

  const remove = ({ metadata: { uid, deletionGracePeriodSeconds } }: AskedPod) => {
    // A waiting pod without a worker has never started.
    if (!waiting.drop(uid) || worker.get(uid)) workers.terminate(uid, deletionGracePeriodSeconds);
  };

  const addAll = async (added: readonly AskedPod[], signal: AbortSignal) => {
    for (const pod of [...added].sort(byCreation))
      await add(deps, waiting, pod, signal).catch((error: unknown) => {
        signal.throwIfAborted();
        // The pods after it are still added.
        log.error({ err: error, pod: fullName(pod), uid: pod.metadata.uid }, "cannot add pod");
      });
    if (asked(added)) await decide("pods_added", signal);
  };

  signals.weigh.heard((trigger) => inbox.push({ freed: trigger }));
  return {
    name: "sync-loop",
    waits: waiting.has,
    resume() {
      const free = waiting.free();
      if (free.length > 0) inbox.push({ resumed: free.map(({ metadata }) => metadata.uid) });
    },
    caughtUp: inbox.isEmpty,
    oweMirrors: mirrorNews.owe,
    push: inbox.push,
    run(signal) {
      const work: InboxWork<Item> = {
        handle: (item) =>
          handle(item, signal).catch((error: unknown) => {
            const update = "op" in item ? item.op : Object.keys(item)[0];
            if (!signal.aborted) log.error({ err: error, update }, "cannot handle pod update");
          }),
        handled(item) {
          if ("source" in item) takenIn.note(item.source);
          mirrorNews.handled(item, !inbox.isEmpty());
        },
      };
      return inbox.run(work, signal);
    },
  };
}

interface Weighing {
  /** Records the requested resources. @returns true if a resize is pending. */
  asked(updated: readonly AskedPod[]): boolean;
  /** Retries pending resizes. @param seen pods whose workers are woken anyway. */
  decide(trigger: ResizeTrigger, signal: AbortSignal, seen?: readonly AskedPod[]): Promise<void>;
}

/** Creates the sync loop's access to resizes of running pods. */
function createWeighing(deps: SyncLoopDeps): Weighing {
  const { worker, standsFor, signals, resizes } = deps;
  return {
    asked(updated) {
      const running = updated.filter((pod) => worker.get(pod.metadata.uid)?.phase === "syncing" && !standsFor(pod));
      return running.filter(resizes.ask).length > 0;
    },
    async decide(trigger, signal, seen = []) {
      for (const uid of await resizes.decide(() => admitted(deps), trigger, signal))
        if (!seen.some(({ metadata }) => metadata.uid === uid)) signals.wake.send(uid, "config");
    },
  };
}

/** Adds a pod: it gets a worker, is rejected, or waits. */
async function add(deps: SyncLoopDeps, waiting: StaticQueue, pod: AskedPod, signal: AbortSignal): Promise<void> {
  const { worker, workers, standsFor } = deps;
  if (isMirrorPod(pod)) return greetMirror(deps, pod);
  if (isStaticPod(pod) && waiting.hold(pod)) return;
  const decided = isEnding(pod) || worker.get(pod.metadata.uid) !== undefined || standsFor(pod);
  const rejection = decided ? undefined : await admit(deps, pod, signal);
  if (rejection) reject(deps, pod, rejection);
  else workers.update(pod);
}

/** Admits a pod with its previous allocation, if any. */
function admit(deps: SyncLoopDeps, pod: AskedPod, signal: AbortSignal): Promise<Rejection | undefined> {
  const { resizes, admission } = deps;
  resizes.take(pod);
  return admission.admit(resizes.allocated(pod), admitted(deps).map(resizes.held), signal);
}

/** The resumed pods, without those that were removed meanwhile. */
function wantedStill(pods: PodStore, { resumed }: Resumed): readonly AskedPod[] {
  return resumed.flatMap((uid) => pods.get(uid) ?? []);
}

interface MirrorNews {
  /** Sends `mirrorsChanged` for a handled item at once, and again once the queue is empty: only then are unwanted mirror pods
   *  known. @param more the queue is not empty. */
  handled(item: Item, more: boolean): void;
  /** Sends `mirrorsChanged` once the queue is empty, for whatever items. */
  owe(): void;
}

function createMirrorNews({ signals }: SyncLoopDeps): MirrorNews {
  let news = false;
  return {
    owe: () => void (news = true),
    handled(item, more) {
      news ||= concernsMirrors(item);
      if (!news) return;
      news = more;
      signals.mirrorsChanged.send();
    },
  };
}

/** True if mirror pods may have to change because of the item. An ADD may be the first report of a source. */
function concernsMirrors(item: Item): boolean {
  if ("freed" in item) return false;
  return "resumed" in item || item.op === "ADD" || item.pods.some((pod) => isMirrorPod(pod) || isStaticPod(pod));
}

function reconcile({ status, worker, workers }: SyncLoopDeps, pod: AskedPod): void {
  status.reconcile(pod);
  if (worker.get(pod.metadata.uid) && (isEnding(pod) || pod.spec.readinessGates?.length)) workers.update(pod);
}

/** Writes the status of a static pod again after its mirror pod has been added, changed or deleted. */
function reconcileShown({ pods, status }: SyncLoopDeps, { metadata: { namespace, name } }: AskedPod): void {
  const pod = pods.byName(namespace, name);
  if (pod && isStaticPod(pod)) status.reconcile(pod);
}

/** Handles an added mirror pod. After a restart it has the last container statuses: a pass adopts them before the status is written. */
function greetMirror(deps: SyncLoopDeps, mirror: AskedPod): void {
  const { pods, worker, signals, status } = deps;
  const pod = pods.byName(mirror.metadata.namespace, mirror.metadata.name);
  const isKnown = pod && isStaticPod(pod) && worker.get(pod.metadata.uid)?.phase === "syncing";
  if (!isKnown || !mirror.status?.containerStatuses?.length) return reconcileShown(deps, mirror);
  signals.wake.send(pod.metadata.uid, "config");
  status.reconcile(pod, takeOverMs);
}

/** Admitted pods that hold resources. */
function admitted({ worker, pods, cache, standsFor }: SyncLoopDeps): readonly AskedPod[] {
  return worker.entries().flatMap(([uid, view]) => {
    const pod = pods.get(uid);
    return pod && isActive(pod, view, cache.get(uid)) && !standsFor(pod) ? [pod] : [];
  });
}

/** Rejects a pod: it is Failed and gets no worker, unless it runs already (it was admitted before a restart): then it is terminated. */
function reject(
  { log, events, status, cache, workers, nowText }: SyncLoopDeps,
  pod: AskedPod,
  { reason, message }: Rejection,
): void {
  log.info({ pod: fullName(pod), reason }, "rejected pod");
  events.event(podReference(pod), "Warning", reason, message);
  const qos = pod.status?.qosClass ?? qosClass(pod.spec);
  // The status manager delays the final phase until the worker has terminated the pod.
  const runs = cache.get(pod.metadata.uid) !== undefined;
  if (runs) workers.update({ ...pod, status: { ...pod.status, phase: "Failed" } });
  status.set(pod, {
    phase: "Failed",
    reason,
    message: `Pod was rejected: ${message}`,
    qosClass: qos,
    startTime: nowText(),
  });
  if (!runs) status.terminated(pod);
}

function byCreation(a: AskedPod, b: AskedPod): number {
  return (a.metadata.creationTimestamp ?? "").localeCompare(b.metadata.creationTimestamp ?? "");
}
