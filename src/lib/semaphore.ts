import { abortError, throwIfAborted } from "./errors.ts";

/** A semaphore: at most `limit` tasks run at once; the others wait in FIFO order. Its function throws the signal's reason if that aborts
 *  before the task starts. @param limit at least 1; Infinity for no limit. */
export function createSemaphore(limit: number): <T>(work: () => Promise<T>, signal?: AbortSignal) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = limit;
  const wait = (signal?: AbortSignal) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const grant = () => {
      signal?.removeEventListener("abort", giveUp);
      resolve();
    };
    const giveUp = () => {
      waiting.splice(waiting.indexOf(grant), 1);
      if (signal) reject(abortError(signal));
    };
    signal?.addEventListener("abort", giveUp, { once: true });
    waiting.push(grant);
    return promise;
  };
  return async (work, signal) => {
    if (signal) throwIfAborted(signal);
    if (free > 0) free -= 1;
    else await wait(signal);
    try {
      return await work();
    } finally {
      // The permit is handed to the next waiter without being released, so no other caller can slip in.
      const next = waiting.shift();
      if (next) next();
      else free += 1;
    }
  };
}
