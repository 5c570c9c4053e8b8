/** Thresholds of a probe. */
export interface Thresholds {
  readonly success: number;
  readonly failure: number;
}

/** Counts equal results in a row. */
export interface Streak {
  /** Notes a result. @returns true when enough of its kind came in a row for it to be the verdict. */
  note(result: "Success" | "Failure"): boolean;
  /** Forgets what was noted. */
  reset(): void;
}

/** @see https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/#configure-probes */
export function createStreak({ success, failure }: Thresholds): Streak {
  let last: "Success" | "Failure" | undefined;
  let run = 0;
  return {
    reset() {
      last = undefined;
    },
    note(result) {
      run = result === last ? run + 1 : 1;
      last = result;
      return run >= (result === "Success" ? success : failure);
    },
  };
}
