import type { Clock } from "./clock.ts";
import { messageOf } from "./errors.ts";
import type { Logger } from "./log.ts";

/** Logs failures of work that is repeated. @param message text of the log line. */
export function createFailureLog(log: Logger, message: string, level: "warn" | "error" = "warn") {
  let last: string | undefined;
  return {
    /** Logs a failure, unless its text is that of the last one. */
    failed(err: unknown, fields?: object): void {
      const text = messageOf(err);
      if (text !== last) log[level]({ err, ...fields }, message);
      last = text;
    },
    /** The work has succeeded: the next failure is logged even if its text is that of the last one. */
    succeeded: () => void (last = undefined),
  };
}

export interface RetryOptions {
  /** The text of the log line for a failure; it is logged again only when the failure's text changes. */
  readonly message: string;
  /** Further fields of that line. */
  readonly fields?: object;
  /** Delay before the next attempt, milliseconds. @param failures number of failed attempts, from 1. */
  readonly delayMs: (error: unknown, failures: number) => number;
  /** True for an error that another attempt would not change. */
  readonly isFinal?: (error: unknown) => boolean;
  readonly clock: Pick<Clock, "sleep">;
  readonly log: Logger;
}

/** Repeats work until it succeeds.
 *  @returns its result; undefined once the signal has aborted.
 *  @throws a final error. */
export async function retryUntilDone<T>(
  { message, fields, delayMs, isFinal, clock, log }: RetryOptions,
  work: () => Promise<T>,
  signal: AbortSignal,
): Promise<T | undefined> {
  const failures = createFailureLog(log, message);
  for (let failed = 1; !signal.aborted; failed++) {
    try {
      return await work();
    } catch (error) {
      if (signal.aborted) return undefined;
      if (isFinal?.(error)) throw error;
      failures.failed(error, fields);
      await clock.sleep(delayMs(error, failed), signal).catch(() => undefined);
    }
  }
  return undefined;
}
