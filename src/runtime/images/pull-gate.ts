import { abortError, throwIfAborted } from "../../lib/errors.ts";

/** Limits concurrent pulls, first come first served. */
export interface PullGate {
  /** Waits for a slot, runs the work, releases the slot. @throws the signal's reason if it aborts while waiting. */
  run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T>;
}

/** @param places at least 1; Infinity for no limit. */
export function createPullGate(places: number): PullGate {
  const waiting: (() => void)[] = [];
  let free = places;
  const enter = (signal: AbortSignal): Promise<void> => {
    throwIfAborted(signal);
    if (free > 0) {
      free -= 1;
      return Promise.resolve();
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const admit = () => {
      signal.removeEventListener("abort", giveUp);
      resolve();
    };
    const giveUp = () => {
      waiting.splice(waiting.indexOf(admit), 1);
      reject(abortError(signal));
    };
    signal.addEventListener("abort", giveUp, { once: true });
    waiting.push(admit);
    return promise;
  };
  const leave = () => {
    const next = waiting.shift();
    if (next) next();
    else free += 1;
  };
  return {
    async run(work, signal) {
      await enter(signal);
      try {
        return await work();
      } finally {
        leave();
      }
    },
  };
}
