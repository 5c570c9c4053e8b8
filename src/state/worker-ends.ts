import { untilAborted } from "../lib/service-group.ts";
import type { Clock } from "../lib/clock.ts";
import type { Pod } from "../objects.ts";
import type { EventSink } from "../pipeline.ts";
import { podReference } from "../pod/reference.ts";
import type { WorkerPhase, WorkerView } from "./pod-table.ts";
import type { Column } from "./rows.ts";

/** True when nothing is left of a pod on the node, volumes included. @param phase undefined where it has no worker. */
export function isFinished(phase: WorkerPhase | undefined): boolean {
  return phase === undefined || phase === "finished";
}

/** Resolves when the workers of these pods have come so far.
 *  @param isThere of a worker's phase; undefined where the pod has no worker. @throws what the signal aborted with. */
export async function untilWorkers(
  worker: Pick<Column<WorkerView>, "get" | "onChange">,
  uids: readonly string[],
  isThere: (phase: WorkerPhase | undefined) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const left = new Set(uids);
  const look = (uid: string) => {
    if (isThere(worker.get(uid)?.phase)) left.delete(uid);
    if (left.size === 0) resolve();
  };
  const forget = worker.onChange((uid) => {
    if (left.has(uid)) look(uid);
  });
  try {
    uids.forEach(look);
    if (left.size > 0) await untilAborted(promise, signal);
  } finally {
    forget();
  }
}

export interface StopDeps {
  readonly worker: Pick<Column<WorkerView>, "get" | "onChange">;
  readonly events: EventSink;
  readonly clock: Clock;
}

/** Pods get half as long again as their grace period to end, and at least so long, seconds. (kubelet, killPodNow) */
const leastPatienceSeconds = 10;

/** Waits for a pod's containers to have ended. An event tells of one whose containers take longer than they may: it ends later.
 *  @returns false for such a pod. @throws what the signal aborted with. */
export async function untilStopped(
  { worker, events, clock }: StopDeps,
  pod: Pod,
  graceSeconds: number,
  signal: AbortSignal,
): Promise<boolean> {
  const patience = clock.within(Math.max(leastPatienceSeconds, graceSeconds * 1.5) * 1000, signal);
  try {
    await untilWorkers(worker, [pod.metadata.uid], isStopped, patience);
    return true;
  } catch {
    signal.throwIfAborted();
    const message = "Container runtime did not kill the pod within specified grace period.";
    events.event(podReference(pod), "Warning", "ExceededGracePeriod", message);
    return false;
  }
}

/** True when nothing of a pod runs any more. */
export function isStopped(phase: WorkerPhase | undefined): boolean {
  return phase !== "syncing" && phase !== "terminating";
}
