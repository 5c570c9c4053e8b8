import type { Clock } from "./clock.ts";
import { abortError } from "./errors.ts";
import { createSingleFlight } from "./single-flight.ts";
import { untilAborted } from "./service-group.ts";

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
