/** A probe's successThreshold and failureThreshold. */
export interface Thresholds {
  readonly success: number;
  readonly failure: number;
}

/** Counts consecutive equal results. */
export interface Streak {
  /** Records a result. @returns true if its threshold has been reached. */
  record(result: "Success" | "Failure"): boolean;
  /** Starts counting again. */
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
    record(result) {
      run = result === last ? run + 1 : 1;
      last = result;
      return run >= (result === "Success" ? success : failure);
    },
  };
}
