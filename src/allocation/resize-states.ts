import type { Clock } from "../lib/clock.ts";
import type { PodCondition } from "../objects.ts";
import type { ResizeState, WorkerView } from "../state/pod-table.ts";
import type { Column, ColumnWriter } from "../state/records.ts";
import { isFinished } from "../state/worker-phases.ts";

/** A resize that has not been allocated, and the reason. */
export type PendingResize = NonNullable<ResizeState["pending"]>;

/** Numbers of resizes by progress. */
export type ResizeCounts = Readonly<Record<"deferred" | "infeasible" | "inProgress", number>>;

/** Progress of pods' resizes.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions */
export type ResizeStates = ReturnType<typeof createResizeStates>;

/** Counts deferred and infeasible resizes, and those in progress. */
export function countResizes(states: readonly ResizeState[]): ResizeCounts {
  const pending = (reason: PendingResize["reason"]) =>
    states.filter((state) => state.pending?.reason === reason).length;
  return {
    deferred: pending("Deferred"),
    infeasible: pending("Infeasible"),
    inProgress: states.filter(({ inProgress }) => inProgress).length,
  };
}

export function createResizeStates(states: ColumnWriter<ResizeState>, clock: Clock) {
  const set = (uid: string, { pending, inProgress }: { [K in keyof ResizeState]: ResizeState[K] | undefined }) => {
    if (pending || inProgress) states.set(uid, { ...(pending && { pending }), ...(inProgress && { inProgress }) });
    else states.delete(uid);
  };
  const of = (uid: string): ResizeState => states.get(uid) ?? {};
  return {
    /** Restores the progress from a pod's conditions in the API server, unless it is known. */
    restore(uid: string, shown: readonly PodCondition[]) {
      if (states.get(uid)) return;
      const [pending, inProgress] = ["PodResizePending", "PodResizeInProgress"].map((type) =>
        shown.find((condition) => condition.type === type),
      );
      set(uid, {
        pending: pending && {
          reason: pending.reason === "Infeasible" ? "Infeasible" : "Deferred",
          message: pending.message ?? "",
          generation: pending.observedGeneration ?? 0,
          since: Date.parse(pending.lastTransitionTime ?? "") || clock.now(),
        },
        inProgress: inProgress && {
          ...(inProgress.reason === "Error" && { error: inProgress.message ?? "" }),
          generation: inProgress.observedGeneration ?? 0,
        },
      });
    },
    deferredSince(uid: string) {
      const { pending } = of(uid);
      return pending?.reason === "Deferred" ? pending.since : undefined;
    },
    /** Marks the resize as deferred or infeasible. @returns whether the state has changed (`news`), or only its message. */
    markPending(uid: string, why: Pick<PendingResize, "reason" | "message">, generation: number) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending: { ...why, generation, since: pending?.since ?? clock.now() }, inProgress });
      if (pending?.generation !== generation || pending.reason !== why.reason) return "news";
      return pending.message === why.message ? undefined : "message";
    },
    /** Marks the resize as no longer pending. @returns true if it was pending. */
    clearPending(uid: string) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending: undefined, inProgress });
      return pending !== undefined;
    },
    markAllocated: (uid: string, generation: number) =>
      set(uid, { pending: of(uid).pending, inProgress: { generation } }),
    /** Records that the allocation has not been actuated yet. */
    markInProgress(uid: string, generation: number) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending, inProgress: inProgress ?? { generation } });
    },
    /** Records that the allocation has been actuated. @returns the generation that requested it, if it was in progress. */
    markCompleted(uid: string) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending, inProgress: undefined });
      return inProgress?.generation;
    },
    /** Records that the allocation could not be actuated. @returns the generation that requested it, if the error is new. */
    markFailed(uid: string, error: string, generation: number) {
      const { pending, inProgress } = of(uid);
      const since = inProgress?.generation ?? generation;
      set(uid, { pending, inProgress: { error, generation: since } });
      return inProgress?.error === error ? undefined : since;
    },
  };
}

export function resizeConditions({ pending, inProgress }: ResizeState = {}): readonly PodCondition[] {
  const waiting = pending && {
    type: "PodResizePending",
    status: "True",
    reason: pending.reason,
    message: pending.message,
    observedGeneration: pending.generation,
  };
  const doing = inProgress && {
    type: "PodResizeInProgress",
    status: "True",
    ...(inProgress.error !== undefined && { reason: "Error", message: inProgress.error }),
    observedGeneration: inProgress.generation,
  };
  return [waiting, doing].filter((condition) => condition !== undefined);
}

/** Counts the resizes of pods with a worker that has not finished. */
export function countActiveResizes(resize: Column<ResizeState>, worker: Column<WorkerView>): ResizeCounts {
  return countResizes(resize.entries().flatMap(([uid, state]) => (isFinished(worker.get(uid)?.phase) ? [] : [state])));
}
