import { createBackoff } from "../lib/backoff.ts";
import { hasCode } from "../lib/errors.ts";
import { LatestSlot } from "../lib/latest-slot.ts";
import { onAbort } from "../lib/service-group.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import type { PodStatus } from "../objects.ts";
import { createStatusWriter, type WriterDeps } from "./writer.ts";

/** Maximum concurrent status writes. */
const parallelWrites = 10;
const firstRetryMs = 200;
const longestRetryMs = 5_000;

/** The status that the API server should have for a pod (the kubelet's versionedPodStatus). */
export interface Held {
  readonly status: PodStatus;
  /** No container of the pod runs, or will. */
  readonly ended: boolean;
  /** The pod's volumes are unmounted too. */
  readonly finished: boolean;
}

export interface DeliveryDeps extends WriterDeps {
  /** The newest status for a pod; undefined if there is none. */
  readonly held: (uid: string) => Held | undefined;
  /** Called when the API server no longer has the pod. */
  readonly onGone: (uid: string) => void;
}

/** Delivers statuses to the API server: one writer per pod, several pods concurrently; failures are retried with back-off. */
export interface Delivery {
  /** Writes the pod's pending status, once running. @param afterMs maximum delay; 0 for now. */
  send(uid: string, afterMs?: number): void;
  forget(uid: string): void;
  /** Delivers until the signal aborts. @param waiting pods whose statuses were set before. */
  run(waiting: readonly string[], signal: AbortSignal): Promise<void>;
}

export function createDelivery(deps: DeliveryDeps): Delivery {
  const { clock, log, held } = deps;
  const boxes = new Map<string, LatestSlot<string>>();
  const writer = createStatusWriter(deps);
  const turn = createSemaphore(parallelWrites);
  const backoff = createBackoff({ clock, initialMs: firstRetryMs, maxMs: longestRetryMs });
  const later = createWorkQueue(clock, (uid) => send(uid));
  /** When each pod's pending change began, by Clock.monotonic(). */
  const since = new Map<string, number>();
  let running: AbortSignal | undefined;

  const send = (uid: string, afterMs = 0) => {
    if (!held(uid)) return;
    if (!since.has(uid)) since.set(uid, clock.monotonic());
    if (!running || running.aborted) return;
    if (afterMs > 0) return later.add(uid, afterMs);
    const box =
      boxes.get(uid) ??
      new LatestSlot<string>(
        (key) => turn(() => write(key)),
        (error) => log.error({ err: error, uid }, "status writer failed"),
      );
    boxes.set(uid, box);
    box.put(uid);
  };

  const write = async (uid: string): Promise<void> => {
    const newest = held(uid);
    if (!newest || !running || running.aborted) return;
    const began = since.get(uid) ?? clock.monotonic();
    // A change from here on counts as a new one.
    since.delete(uid);
    try {
      const gone = await writer.write({ uid, ...newest, since: began }, running);
      backoff.reset(uid);
      if (gone) deps.onGone(uid);
    } catch (error) {
      if (running.aborted) return;
      const unreachable = hasCode(error, "unavailable", "deadline_exceeded", "conflict");
      log[unreachable ? "debug" : "warn"]({ err: error, uid }, "cannot write pod status; retrying");
      if (!held(uid)) return;
      since.set(uid, began);
      later.add(uid, backoff.next(uid) * clock.jitter(1, 1.5));
    } finally {
      if (!held(uid)) boxes.delete(uid);
    }
  };

  return {
    send,
    forget(uid) {
      // A busy slot stays until it is done: a pod never has two writers.
      if (!boxes.get(uid)?.busy) boxes.delete(uid);
      later.drop(uid);
      since.delete(uid);
      backoff.reset(uid);
      writer.forget(uid);
    },
    async run(waiting, signal) {
      running = signal;
      for (const uid of waiting) send(uid);
      await onAbort(signal);
      later.stop();
      await Promise.all([...boxes.values()].map((box) => box.idle()));
    },
  };
}
