import type { Clock } from "./clock.ts";
import { abortError } from "./errors.ts";
import { untilAborted } from "./runnables.ts";

/** Runs one call per key at a time: callers during a call share its outcome. */
export function createSingleFlight<T>(): (key: string, call: () => Promise<T>) => Promise<T> {
  const running = new Map<string, Promise<T>>();
  return (key, call) => {
    const known = running.get(key);
    if (known) return known;
    const started = call().finally(() => running.delete(key));
    running.set(key, started);
    return started;
  };
}

/** A promise shared by concurrent callers: the work continues, up to its own timeout, when one of the callers aborts.
 *  @param timeoutMs milliseconds. */
export function createSharedPromise<T>(
  clock: Clock,
  timeoutMs: number,
): (work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal) => Promise<T> {
  const once = createSingleFlight<T>();
  return (work, signal) => {
    if (signal.aborted) return Promise.reject(abortError(signal));
    return untilAborted(
      once("", () => work(clock.within(timeoutMs))),
      signal,
    );
  };
}
