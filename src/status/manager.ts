import { createBackoff } from "../lib/backoff.ts";
import { hasCode } from "../lib/errors.ts";
import { Mailbox } from "../lib/mailbox.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import { onAbort, type Service } from "../lib/service-group.ts";
import { createTurns } from "../lib/turns.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import type { Pod, PodStatus } from "../objects.ts";
import type { StatusSink } from "../pipeline.ts";
import { normalizeStatus } from "./normalize.ts";
import { terminatedStatus } from "./terminate.ts";
import { carryOn, illegalRevival } from "./transition.ts";
import { createStatusWriter, type WriterDeps } from "./writer.ts";

/** Pods whose statuses are written at the same time. */
const parallelWrites = 10;
const firstRetryMs = 200;
const longestRetryMs = 5_000;

export interface StatusManager extends StatusSink, Service {
  /** Looks again whether the API server shows what it should: somebody else changed the pod's status, or its containers can no
   *  longer run. */
  reconcile(pod: Pod): void;
  /** Drops what is known of a pod that is gone. */
  forget(uid: string): void;
}

interface Held {
  readonly status: PodStatus;
  readonly finished: boolean;
}

/** The only writer of pod statuses. What it promises:
 *  1. a status leaves as soon as it is set, the newest one wins, and nothing is sent when nothing changed;
 *  2. start time, transition times and final phases of the API server stand, also after a restart;
 *  3. a final phase is shown only when no container of the pod can run any more;
 *  4. the object of a pod is deleted only when it was to be deleted, is finished, and shows its final phase.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function createStatusManager(deps: WriterDeps): StatusManager {
  const { clock, log } = deps;
  const held = new Map<string, Held>();
  const boxes = new Map<string, Mailbox<string>>();
  const writer = createStatusWriter(deps);
  const turn = createTurns(parallelWrites);
  const backoff = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });
  const later = createWorkQueue(clock, (uid) => kick(uid));
  let running: AbortSignal | undefined;

  const kick = (uid: string) => {
    if (!running || running.aborted || !held.has(uid)) return;
    const box = boxes.get(uid) ?? new Mailbox<string>((key) => turn(() => write(key)), (error) => log.error({ err: error, uid }, "status writer failed"));
    boxes.set(uid, box);
    box.put(uid);
  };

  const write = async (uid: string): Promise<void> => {
    const newest = held.get(uid);
    if (!newest || !running || running.aborted) return;
    try {
      const gone = await writer.write({ uid, ...newest }, running);
      backoff.reset(uid);
      if (gone) forget(uid);
    } catch (error) {
      if (running.aborted) return;
      const unreachable = hasCode(error, "unavailable", "deadline_exceeded", "conflict");
      log[unreachable ? "debug" : "warn"]({ err: error, uid }, "status was not written, will retry");
      if (held.has(uid)) later.add(uid, backoff.next(uid) * clock.jitter(1, 1.5));
    } finally {
      if (!held.has(uid)) boxes.delete(uid);
    }
  };

  const hold = (pod: Pod, status: PodStatus, finished: boolean) => {
    const { uid, namespace, name } = pod.metadata;
    const known = held.get(uid);
    const before = known?.status ?? pod.status;
    const container = illegalRevival(pod, before, status);
    if (container !== undefined) {
      log.error({ pod: `${namespace}/${name}`, uid, container }, "status dropped: it revives a container that has ended for good");
      return;
    }
    const next = normalizeStatus(pod, carryOn(pod, before, status, rfc3339(clock.now())));
    held.set(uid, { status: next, finished: finished || (known?.finished ?? false) });
    kick(uid);
  };

  const forget = (uid: string) => {
    held.delete(uid);
    // A box at work stays until it is done: one pod never has two writers.
    if (!boxes.get(uid)?.busy) boxes.delete(uid);
    later.drop(uid);
    backoff.reset(uid);
    writer.forget(uid);
  };

  return {
    name: "status-manager",
    get: (uid) => held.get(uid)?.status,
    set: (pod, status) => hold(pod, status, false),
    terminated: (pod) => hold(pod, terminatedStatus(pod, held.get(pod.metadata.uid)?.status ?? pod.status ?? {}), true),
    reconcile: (pod) => kick(pod.metadata.uid),
    forget,
    async run(signal) {
      running = signal;
      for (const uid of held.keys()) kick(uid);
      await onAbort(signal);
      later.stop();
      await Promise.all([...boxes.values()].map((box) => box.idle()));
    },
  };
}
