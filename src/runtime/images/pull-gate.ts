import { abortError, throwIfAborted } from "../../lib/errors.ts";

/** Limits concurrent pulls, first come first served. */
export interface PullGate {
  /** Waits for a slot, runs the work, releases the slot. @throws the signal's reason if it aborts while waiting. */
  run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T>;
}

/** @param slots at least 1; Infinity for no limit. */
export function createPullGate(slots: number): PullGate {
  const waiting: (() => void)[] = [];
  let free = slots;
  const acquire = (signal: AbortSignal): Promise<void> => {
    throwIfAborted(signal);
    if (free > 0) {
      free -= 1;
      return Promise.resolve();
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const grant = () => {
      signal.removeEventListener("abort", giveUp);
      resolve();
    };
    const giveUp = () => {
      waiting.splice(waiting.indexOf(grant), 1);
      reject(abortError(signal));
    };
    signal.addEventListener("abort", giveUp, { once: true });
    waiting.push(grant);
    return promise;
  };
  const release = () => {
    const next = waiting.shift();
    if (next) next();
    else free += 1;
  };
  return {
    async run(work, signal) {
      await acquire(signal);
      try {
        return await work();
      } finally {
        release();
      }
    },
  };
}
