import type { Clock } from "../lib/clock.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import { createSharedWork } from "../lib/shared-work.ts";

export interface RecentDeps<T> {
  readonly name: string;
  readonly read: (signal: AbortSignal) => Promise<T>;
  /** For how long what was read counts as new, milliseconds. */
  readonly freshMs: number;
  /** The longest that reading may take, milliseconds. */
  readonly limitMs: number;
  /** Told of a failure that nobody waited for. */
  readonly onError: (error: unknown) => void;
  readonly clock: Clock;
}

/** Something that is found out for whoever asks, kept for a while. While nobody asks nothing is done. */
export interface Recent<T> extends Service {
  /** What is new: read now unless it was read of late. */
  fresh(signal: AbortSignal): Promise<T>;
  /** What was read last; what is no longer new is read again, for those who ask later. What is much too old, or nothing, is waited
   *  for, as long as `patienceMs`. @returns undefined where nothing is known by then. */
  latest(patienceMs: number, signal: AbortSignal): Promise<T | undefined>;
}

export function createRecent<T>({ name, read, freshMs, limitMs, onError, clock }: RecentDeps<T>): Recent<T> {
  const stop = new AbortController();
  const shared = createSharedWork<T>(clock, limitMs);
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
    async fresh(signal) {
      return known && age() < freshMs ? known.value : shared(refresh, signal);
    },
    async latest(patienceMs, signal) {
      if (age() < freshMs) return known?.value;
      refreshing = shared(refresh, stop.signal).then(
        () => undefined,
        (error: unknown) => {
          if (!stop.signal.aborted) onError(error);
        },
      );
      if (age() < 2 * freshMs) return known?.value;
      const waited = new AbortController();
      const patience = clock.sleep(patienceMs, AbortSignal.any([signal, waited.signal])).catch(() => undefined);
      await Promise.race([refreshing, patience]);
      waited.abort();
      return known?.value;
    },
    async run(signal) {
      await onAbort(signal);
      stop.abort();
      await refreshing;
    },
  };
}
