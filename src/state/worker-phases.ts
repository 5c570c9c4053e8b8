import { untilAborted } from "../lib/runnables.ts";
import type { Clock } from "../lib/clock.ts";
import type { Pod } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import type { WorkerPhase, WorkerView } from "./pod-table.ts";
import type { Column } from "./records.ts";

/** True if nothing of a pod is left on the node, including volumes. @param phase undefined if the pod has no worker. */
export function isFinished(phase: WorkerPhase | undefined): boolean {
  return phase === undefined || phase === "finished";
}

/** Resolves when the workers of all these pods have reached a phase.
 *  @param hasReached tests a worker's phase; undefined if the pod has no worker. @throws the signal's abort reason. */
export async function untilWorkers(
  worker: Pick<Column<WorkerView>, "get" | "onChange">,
  uids: readonly string[],
  hasReached: (phase: WorkerPhase | undefined) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const left = new Set(uids);
  const check = (uid: string) => {
    if (hasReached(worker.get(uid)?.phase)) left.delete(uid);
    if (left.size === 0) resolve();
  };
  const unsubscribe = worker.onChange((uid) => {
    if (left.has(uid)) check(uid);
  });
  try {
    uids.forEach(check);
    if (left.size > 0) await untilAborted(promise, signal);
  } finally {
    unsubscribe();
  }
}

export interface StopDeps {
  readonly worker: Pick<Column<WorkerView>, "get" | "onChange">;
  readonly events: EventSink;
  readonly clock: Clock;
}

/** Pods may take 1.5 times their grace period to end, but at least this long, seconds. (kubelet, killPodNow) */
const minTimeoutSeconds = 10;

/** Waits until a pod's containers have ended. If they exceed their time, an event is emitted; the pod ends later.
 *  @returns false if they exceed their time. @throws the signal's abort reason. */
export async function untilStopped(
  { worker, events, clock }: StopDeps,
  pod: Pod,
  graceSeconds: number,
  signal: AbortSignal,
): Promise<boolean> {
  const timeout = clock.within(Math.max(minTimeoutSeconds, graceSeconds * 1.5) * 1000, signal);
  try {
    await untilWorkers(worker, [pod.metadata.uid], isStopped, timeout);
    return true;
  } catch {
    signal.throwIfAborted();
    const message = "Container runtime did not kill the pod within specified grace period.";
    events.event(podReference(pod), "Warning", "ExceededGracePeriod", message);
    return false;
  }
}

/** True if none of the pod's containers runs any more. */
export function isStopped(phase: WorkerPhase | undefined): boolean {
  return phase !== "syncing" && phase !== "terminating";
}
