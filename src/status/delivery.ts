import { createBackoff } from "../lib/backoff.ts";
import { hasCode } from "../lib/errors.ts";
import { LatestSlot } from "../lib/latest-slot.ts";
import { onAbort } from "../lib/runnables.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import { createWorkQueue } from "../lib/work-queue.ts";
import { createStatusWriter, type PendingStatus, type WriterDeps } from "./writer.ts";

/** Maximum concurrent status writes. */
const maxConcurrentWrites = 10;
const initialRetryDelayMs = 200;
const maxRetryDelayMs = 5_000;

export interface DeliveryDeps extends WriterDeps {
  /** The newest status for a pod; undefined if there is none. */
  readonly pendingStatus: (uid: string) => PendingStatus | undefined;
  /** Called when the API server no longer has the pod. */
  readonly onGone: (uid: string) => void;
}

/** Delivers statuses to the API server: one writer per pod, several pods concurrently; failures are retried with back-off. */
export function createDelivery(deps: DeliveryDeps) {
  const { clock, log, pendingStatus } = deps;
  const slots = new Map<string, LatestSlot<string>>();
  const writer = createStatusWriter(deps);
  const limit = createSemaphore(maxConcurrentWrites);
  const backoff = createBackoff({ clock, initialMs: initialRetryDelayMs, maxMs: maxRetryDelayMs });
  const delayed = createWorkQueue(clock, (uid) => send(uid));
  /** When each pod's pending change began, by Clock.monotonic(). */
  const changedAt = new Map<string, number>();
  let running: AbortSignal | undefined;

  /** Writes the pod's pending status, once `run` has been called. @param afterMs maximum delay, milliseconds; 0 writes at
   *  once. */
  const send = (uid: string, afterMs = 0) => {
    if (!pendingStatus(uid)) return;
    if (!changedAt.has(uid)) changedAt.set(uid, clock.monotonic());
    if (!running || running.aborted) return;
    if (afterMs > 0) return delayed.add(uid, afterMs);
    const slot =
      slots.get(uid) ??
      new LatestSlot<string>(
        (key) => limit(() => write(key)),
        (error) => log.error({ err: error, uid }, "status writer failed"),
      );
    slots.set(uid, slot);
    slot.put(uid);
  };

  const write = async (uid: string): Promise<void> => {
    const newest = pendingStatus(uid);
    if (!newest || !running || running.aborted) return;
    const began = changedAt.get(uid) ?? clock.monotonic();
    // A change from here on counts as a new one.
    changedAt.delete(uid);
    try {
      const gone = await writer.write({ uid, ...newest, changedAt: began }, running);
      backoff.reset(uid);
      if (gone) deps.onGone(uid);
    } catch (error) {
      if (running.aborted) return;
      const unreachable = hasCode(error, "unavailable", "deadline_exceeded", "conflict");
      log[unreachable ? "debug" : "warn"]({ err: error, uid }, "cannot write pod status; retrying");
      if (!pendingStatus(uid)) return;
      changedAt.set(uid, began);
      delayed.add(uid, backoff.next(uid) * clock.jitter(1, 1.5));
    } finally {
      if (!pendingStatus(uid)) slots.delete(uid);
    }
  };

  return {
    send,
    forget(uid: string) {
      // A busy slot stays until it is done: a pod never has two writers.
      if (!slots.get(uid)?.busy) slots.delete(uid);
      delayed.drop(uid);
      changedAt.delete(uid);
      backoff.reset(uid);
      writer.forget(uid);
    },
    /** Delivers until the signal aborts. @param waiting pods whose statuses were set before. */
    async run(waiting: readonly string[], signal: AbortSignal) {
      running = signal;
      for (const uid of waiting) send(uid);
      await onAbort(signal);
      delayed.stop();
      await Promise.all([...slots.values()].map((slot) => slot.idle()));
    },
  };
}
