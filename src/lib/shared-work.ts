import type { Clock } from "./clock.ts";
import { abortError } from "./errors.ts";
import { createSingleFlight } from "./single-flight.ts";

/** Work whose callers share the run under way: it goes on, up to its own limit, when one of the callers gives up.
 *  @param limitMs milliseconds. */
export function createSharedWork<T>(
  clock: Clock,
  limitMs: number,
): (work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal) => Promise<T> {
  const once = createSingleFlight<T>();
  return (work, signal) => {
    if (signal.aborted) return Promise.reject(abortError(signal));
    return orAborted(
      once("", () => work(clock.within(limitMs))),
      signal,
    );
  };
}

async function orAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const abort = () => reject(abortError(signal));
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}
