import { untilAborted } from "../lib/service-group.ts";
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
