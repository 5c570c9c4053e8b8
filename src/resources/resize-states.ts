import type { Clock } from "../lib/clock.ts";
import type { PodCondition } from "../objects.ts";

interface Pending {
  readonly message: string;
  readonly generation: number;
  /** Milliseconds since the epoch. */
  readonly since: number;
}

interface InProgress {
  readonly error?: string;
  /** Of the spec that asked for it. */
  readonly generation: number;
}

interface State {
  readonly pending?: Pending;
  readonly inProgress?: InProgress;
}

/** How far the resizes of pods are, as their conditions show it.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions */
export function createResizeStates(clock: Clock) {
  const states = new Map<string, State>();
  const set = (uid: string, { pending, inProgress }: { [K in keyof State]: State[K] | undefined }) => {
    if (pending || inProgress) states.set(uid, { ...(pending && { pending }), ...(inProgress && { inProgress }) });
    else states.delete(uid);
  };
  const of = (uid: string): State => states.get(uid) ?? {};
  return {
    conditions: (uid: string): readonly PodCondition[] => conditionsOf(of(uid)),
    /** What the API server shows of a pod that this node has not seen before. */
    recall(uid: string, shown: readonly PodCondition[]): void {
      if (states.has(uid)) return;
      const [pending, inProgress] = ["PodResizePending", "PodResizeInProgress"].map((type) =>
        shown.find((condition) => condition.type === type),
      );
      set(uid, {
        pending: pending && {
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
    deferredSince: (uid: string): number | undefined => of(uid).pending?.since,
    /** It has to wait. @returns whether that is news, or the reason is. */
    defer(uid: string, message: string, generation: number): "news" | "reason" | undefined {
      const { pending, inProgress } = of(uid);
      set(uid, { pending: { message, generation, since: pending?.since ?? clock.now() }, inProgress });
      if (pending?.generation !== generation) return "news";
      return pending.message === message ? undefined : "reason";
    },
    /** It waits no longer. @returns whether it did. */
    settle(uid: string): boolean {
      const { pending, inProgress } = of(uid);
      set(uid, { pending: undefined, inProgress });
      return pending !== undefined;
    },
    /** What was asked for has been given. */
    begin: (uid: string, generation: number): void =>
      set(uid, { pending: of(uid).pending, inProgress: { generation } }),
    /** It is not in force yet. */
    goOn(uid: string, generation: number): void {
      const { pending, inProgress } = of(uid);
      set(uid, { pending, inProgress: inProgress ?? { generation } });
    },
    /** It is in force. @returns the generation that asked for it, where it was not before. */
    end(uid: string): number | undefined {
      const { pending, inProgress } = of(uid);
      set(uid, { pending, inProgress: undefined });
      return inProgress?.generation;
    },
    /** It could not be put in force. @returns the generation that asked for it, where that is news. */
    fail(uid: string, error: string, generation: number): number | undefined {
      const { pending, inProgress } = of(uid);
      const since = inProgress?.generation ?? generation;
      set(uid, { pending, inProgress: { error, generation: since } });
      return inProgress?.error === error ? undefined : since;
    },
    counts() {
      const all = [...states.values()];
      return {
        pending: all.filter(({ pending }) => pending).length,
        inProgress: all.filter(({ inProgress }) => inProgress).length,
      };
    },
    uids: (): readonly string[] => [...states.keys()],
    forget: (uid: string): void => void states.delete(uid),
  };
}

function conditionsOf({ pending, inProgress }: State): readonly PodCondition[] {
  const waiting = pending && {
    type: "PodResizePending",
    status: "True",
    reason: "Deferred",
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
