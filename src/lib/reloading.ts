import type { ClockAndLog } from "./log.ts";
import { runPeriodically } from "./periodic.ts";
import type { Runnable } from "./runnables.ts";
import { createSignal } from "./signal.ts";

/** A value that may change at run time. */
export interface Reloading<T> {
  current(): T;
  /** Calls back after every change. @returns a function that unsubscribes. */
  onChange(listener: () => void): () => void;
}

export interface ReloadingOptions<T> extends ClockAndLog {
  readonly name: string;
  readonly initial: T;
  /** Reads the current value; on rejection the old one is kept. */
  readonly read: (signal: AbortSignal) => Promise<T>;
  readonly same: (one: T, other: T) => boolean;
  /** True for a value that means "none yet": the source is then read again as early as after a failure. */
  readonly isMissing?: (value: T) => boolean;
  readonly intervalMs: number;
  /** Triggers a read before the interval has passed; see `runPeriodically`. */
  readonly changed?: (signal: AbortSignal) => Promise<void>;
}

/** Delay before a failed source is read again, milliseconds: doubled up to the normal interval. */
const initialRetryDelayMs = 1_000;

/** Reads a value periodically and on change events, and notifies listeners of changes. A failing source is logged once until
 *  it works again, and is retried earlier. */
export function createReloading<T>(options: ReloadingOptions<T>): Reloading<T> & Runnable {
  const { name, read, same, isMissing, intervalMs, changed, clock, log } = options;
  const reloaded = createSignal();
  let value = options.initial;
  let failing = false;
  let retryMs = initialRetryDelayMs;
  const reload = async (signal: AbortSignal) => {
    try {
      const next = await read(signal);
      failing = false;
      if (same(next, value)) return;
      value = next;
      log.info({ name }, "reloaded");
      reloaded.send();
    } catch (err) {
      if (!failing && !signal.aborted) log.warn({ name, err }, "cannot reload; keeping the last value");
      failing = true;
    }
  };
  const pauseMs = () => {
    const soon = failing || isMissing?.(value);
    const pause = soon ? Math.min(retryMs, intervalMs) : intervalMs;
    retryMs = soon ? retryMs * 2 : initialRetryDelayMs;
    return pause;
  };
  return {
    ...runPeriodically({ name, intervalMs: pauseMs, ...(changed && { changed }), clock, log }, reload),
    current: () => value,
    onChange: reloaded.subscribe,
  };
}

/** Resolves when the value is set. */
export function untilSome(value: Reloading<unknown>): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const check = () => {
    if (value.current() === undefined) return;
    unsubscribe();
    resolve();
  };
  const unsubscribe = value.onChange(check);
  check();
  return promise;
}
