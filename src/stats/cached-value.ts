import type { Clock } from "../lib/clock.ts";
import { pause } from "../lib/pause.ts";
import { onAbort } from "../lib/runnables.ts";
import { createSharedPromise } from "../lib/single-flight.ts";

export interface CachedValueDeps<T> {
  readonly name: string;
  readonly read: (signal: AbortSignal) => Promise<T>;
  /** Time for which a result is considered current, milliseconds. */
  readonly maxAgeMs: number;
  /** Timeout of a read, milliseconds. */
  readonly timeoutMs: number;
  /** Called with errors of background reads. */
  readonly onError: (error: unknown) => void;
  readonly clock: Clock;
}

/** A value that is read on request and cached. Without requests, nothing is read. */
export function createCachedValue<T>({ name, read, maxAgeMs, timeoutMs, onError, clock }: CachedValueDeps<T>) {
  const stop = new AbortController();
  const shared = createSharedPromise<T>(clock, timeoutMs);
  let known: { readonly value: T; readonly at: number } | undefined;
  let refreshing: Promise<void> = Promise.resolve();
  const age = () => (known ? clock.monotonic() - known.at : Number.POSITIVE_INFINITY);
  const refresh = async (signal: AbortSignal): Promise<T> => {
    const value = await read(AbortSignal.any([signal, stop.signal]));
    known = { value, at: clock.monotonic() };
    return value;
  };
  return {
    name,
    /** A fresh value: from the cache, or read now. */
    async fresh(signal: AbortSignal): Promise<T> {
      return known && age() < maxAgeMs ? known.value : shared(refresh, signal);
    },
    /** The last value; if it is stale, it is refreshed in the background. If it is much too old or missing, waits up to
     *  `patienceMs`. @returns undefined if there is no value by then. */
    async latest(patienceMs: number, signal: AbortSignal): Promise<T | undefined> {
      if (age() < maxAgeMs) return known?.value;
      refreshing = shared(refresh, stop.signal).then(
        () => undefined,
        (error: unknown) => {
          if (!stop.signal.aborted) onError(error);
        },
      );
      if (age() < 2 * maxAgeMs) return known?.value;
      await pause(clock, patienceMs, refreshing, signal);
      return known?.value;
    },
    async run(signal: AbortSignal): Promise<void> {
      await onAbort(signal);
      stop.abort();
      await refreshing;
    },
  };
}
