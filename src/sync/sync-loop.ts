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

/** A pass that takes over what a mirror pod says is made within this, milliseconds. */
const takeOverMs = 1_000;

export interface SyncLoopDeps {
  readonly manager: Pick<PodManager, "take">;
  readonly pods: PodStore;
  readonly worker: Column<WorkerView>;
  readonly workers: PodWorkers;
  readonly admission: Admission;
  /** A placeholder stands for the pod: it takes nothing of the node. */
  readonly standsFor: (pod: AskedPod) => boolean;
  readonly resizes: ResizeDecider;
  readonly status: StatusSink & { reconcile(pod: AskedPod, afterMs?: number): void };
  readonly cache: PodCache;
  readonly events: EventSink;
  /** Sources whose first words have been handled. */
  readonly takenIn: SourceMarksPair["writer"];
  /** Hears `weigh`; `mirrorsChanged` is sent when static pods or mirror pods may have come, changed, begun or gone, or a source has
   *  spoken for the first time. */
  readonly signals: Hears<"weigh"> & Sends<"wake" | "mirrorsChanged">;
  readonly nowText: () => string;
  readonly log: Logger;
}

/** UIDs of pods that need wait no longer. */
interface Resumed {
  readonly resumed: readonly string[];
}

/** Something may have become free. */
interface Freed {
  readonly freed: ResizeTrigger;
}

type Item = PodUpdate | Resumed | Freed;

export interface SyncLoop extends Service {
  /** Takes an update in; never waits. */
  push(update: PodUpdate): void;
  /** A pod of this UID waits to be taken in. */
  waits(uid: string): boolean;
  /** Takes in the static pods that waited and whose name is free now. */
  resume(): void;
  /** False while an update waits or is being handled: until then a wanted pod may be unknown. */
  caughtUp(): boolean;
  /** Mirror pods were looked at too early: they are told again once nothing waits or is being handled. */
  oweMirrors(): void;
}

/** Turns what sources say into work for pod workers. Admission is decided here, one pod at a time and in order of creation,
 *  before a pod gets a worker: what pods compete for is never decided side by side. */
export function createSyncLoop(deps: SyncLoopDeps): SyncLoop {
  const { manager, pods, workers, worker, takenIn, signals, log } = deps;
  const inbox = createInbox<Item>();
  const waiting = createStaticQueue(deps);
  const mirrorNews = createMirrorNews(deps);
  const { asked, decide } = createWeighing(deps);

  const handle = async (update: Item, signal: AbortSignal) => {
    if ("freed" in update) return decide(update.freed, signal);
    if ("resumed" in update) return addAll(wantedStill(pods, update), signal);
    // Its worker ends it for as long as the pod's row is there.
    if (update.op === "REMOVE") for (const pod of update.pods) if (!isMirrorPod(pod)) remove(pod);
    manager.take(update);
    if (update.op === "ADD") return addAll(update.pods, signal);
    // Decided before a worker sees what is asked for.
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
    // One that waited has never begun.
    if (!waiting.drop(uid) || worker.get(uid)) workers.terminate(uid, deletionGracePeriodSeconds);
  };

  const addAll = async (added: readonly AskedPod[], signal: AbortSignal) => {
    for (const pod of [...added].sort(byCreation))
      await add(deps, waiting, pod, signal).catch((error: unknown) => {
        signal.throwIfAborted();
        // Those after it are none the worse for it.
        log.error({ err: error, pod: fullName(pod), uid: pod.metadata.uid }, "pod could not be taken in");
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
            if (!signal.aborted) log.error({ err: error, update }, "update could not be handled");
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
  /** @returns whether there is something to decide. */
  asked(updated: readonly AskedPod[]): boolean;
  /** Has what is pending decided. @param seen pods whose workers are told of them anyway. */
  decide(trigger: ResizeTrigger, signal: AbortSignal, seen?: readonly AskedPod[]): Promise<void>;
}

/** Resizes of the pods that run here. */
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

/** Takes a pod in: it gets a worker, is refused, or waits. */
async function add(deps: SyncLoopDeps, waiting: StaticQueue, pod: AskedPod, signal: AbortSignal): Promise<void> {
  const { worker, workers, standsFor } = deps;
  if (isMirrorPod(pod)) return greetMirror(deps, pod);
  if (isStaticPod(pod) && waiting.hold(pod)) return;
  const decided = isEnding(pod) || worker.get(pod.metadata.uid) !== undefined || standsFor(pod);
  const rejection = decided ? undefined : await admit(deps, pod, signal);
  if (rejection) reject(deps, pod, rejection);
  else workers.update(pod);
}

/** Admits against its previous allocation, if any. */
function admit(deps: SyncLoopDeps, pod: AskedPod, signal: AbortSignal): Promise<Rejection | undefined> {
  const { resizes, admission } = deps;
  resizes.take(pod);
  return admission.admit(resizes.allocated(pod), admitted(deps).map(resizes.held), signal);
}

/** One that was taken away meanwhile is not there any more. */
function wantedStill(pods: PodStore, { resumed }: Resumed): readonly AskedPod[] {
  return resumed.flatMap((uid) => pods.get(uid) ?? []);
}

interface MirrorNews {
  /** Signals a handled update at once, and again when everything that came meanwhile is handled: only then are unwanted mirror pods
   *  known. @param more there is more to handle. */
  handled(item: Item, more: boolean): void;
  /** Tells once all is handled, whatever it is. */
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

/** True if mirror pods may have to follow the item. The first ADD may be all that a source has to say. */
function concernsMirrors(item: Item): boolean {
  if ("freed" in item) return false;
  return "resumed" in item || item.op === "ADD" || item.pods.some((pod) => isMirrorPod(pod) || isStaticPod(pod));
}

function reconcile({ status, worker, workers }: SyncLoopDeps, pod: AskedPod): void {
  status.reconcile(pod);
  if (worker.get(pod.metadata.uid) && (isEnding(pod) || pod.spec.readinessGates?.length)) workers.update(pod);
}

/** A mirror pod has come, gone or changed: it should show its static pod's status. */
function reconcileShown({ pods, status }: SyncLoopDeps, { metadata: { namespace, name } }: AskedPod): void {
  const pod = pods.byName(namespace, name);
  if (pod && isStaticPod(pod)) status.reconcile(pod);
}

/** A mirror pod of before a restart says how its containers were: a pass takes that over before the API server hears of them. */
function greetMirror(deps: SyncLoopDeps, mirror: AskedPod): void {
  const { pods, worker, signals, status } = deps;
  const pod = pods.byName(mirror.metadata.namespace, mirror.metadata.name);
  const isKnown = pod && isStaticPod(pod) && worker.get(pod.metadata.uid)?.phase === "syncing";
  if (!isKnown || !mirror.status?.containerStatuses?.length) return reconcileShown(deps, mirror);
  signals.wake.send(pod.metadata.uid, "config");
  status.reconcile(pod, takeOverMs);
}

/** Pods that were admitted and hold resources. */
function admitted({ worker, pods, cache, standsFor }: SyncLoopDeps): readonly AskedPod[] {
  return worker.entries().flatMap(([uid, view]) => {
    const pod = pods.get(uid);
    return pod && isActive(pod, view, cache.get(uid)) && !standsFor(pod) ? [pod] : [];
  });
}

/** A refused pod is Failed for good and gets no worker; one that runs already (it was admitted before a restart) is ended. */
function reject(
  { log, events, status, cache, workers, nowText }: SyncLoopDeps,
  pod: AskedPod,
  { reason, message }: Rejection,
): void {
  log.info({ pod: fullName(pod), reason }, "pod refused");
  events.event(podReference(pod), "Warning", reason, message);
  const qos = pod.status?.qosClass ?? qosClass(pod.spec);
  // While its worker ends it, the status manager holds the final phase back.
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
