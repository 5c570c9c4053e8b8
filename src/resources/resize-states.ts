import type { Clock } from "../lib/clock.ts";
import type { PodCondition } from "../objects.ts";
import type { PendingResize, ResizeCounts, ResizeState } from "../resizes.ts";
import type { ColumnWriter } from "../state/rows.ts";

/** Progress of the resizes of pods.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions */
export interface ResizeStates {
  /** Takes over what the API server shows of a pod that this node has not seen before. */
  recall(uid: string, shown: readonly PodCondition[]): void;
  deferredSince(uid: string): number | undefined;
  /** It has to wait, or cannot be done. @returns whether that is news, or the message is. */
  hold(uid: string, why: Pick<PendingResize, "reason" | "message">, generation: number): "news" | "message" | undefined;
  /** It waits no longer. @returns whether it did. */
  settle(uid: string): boolean;
  /** The pod has been given what it asked for. */
  begin(uid: string, generation: number): void;
  /** It is not in force yet. */
  goOn(uid: string, generation: number): void;
  /** It is in force. @returns the generation that asked for it, where it was not before. */
  end(uid: string): number | undefined;
  /** It could not be put in force. @returns the generation that asked for it, where that is news. */
  fail(uid: string, error: string, generation: number): number | undefined;
}

/** Resizes that wait, that cannot be done, and that are being put in force. */
export function countResizes(states: readonly ResizeState[]): ResizeCounts {
  const pending = (reason: PendingResize["reason"]) =>
    states.filter((state) => state.pending?.reason === reason).length;
  return {
    deferred: pending("Deferred"),
    infeasible: pending("Infeasible"),
    inProgress: states.filter(({ inProgress }) => inProgress).length,
  };
}

/** Writes the progress of resizes into their column. */
export function createResizeStates(states: ColumnWriter<ResizeState>, clock: Clock): ResizeStates {
  const set = (uid: string, { pending, inProgress }: { [K in keyof ResizeState]: ResizeState[K] | undefined }) => {
    if (pending || inProgress) states.set(uid, { ...(pending && { pending }), ...(inProgress && { inProgress }) });
    else states.delete(uid);
  };
  const of = (uid: string): ResizeState => states.get(uid) ?? {};
  return {
    recall(uid, shown) {
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
    deferredSince(uid) {
      const { pending } = of(uid);
      return pending?.reason === "Deferred" ? pending.since : undefined;
    },
    hold(uid, why, generation) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending: { ...why, generation, since: pending?.since ?? clock.now() }, inProgress });
      if (pending?.generation !== generation || pending.reason !== why.reason) return "news";
      return pending.message === why.message ? undefined : "message";
    },
    settle(uid) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending: undefined, inProgress });
      return pending !== undefined;
    },
    begin: (uid, generation) => set(uid, { pending: of(uid).pending, inProgress: { generation } }),
    goOn(uid, generation) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending, inProgress: inProgress ?? { generation } });
    },
    end(uid) {
      const { pending, inProgress } = of(uid);
      set(uid, { pending, inProgress: undefined });
      return inProgress?.generation;
    },
    fail(uid, error, generation) {
      const { pending, inProgress } = of(uid);
      const since = inProgress?.generation ?? generation;
      set(uid, { pending, inProgress: { error, generation: since } });
      return inProgress?.error === error ? undefined : since;
    },
  };
}

/** Conditions that show the progress of a pod's resize. */
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
