import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";

export interface SlowReadingOptions<T> {
  /** Name of the measurement, for the log. */
  readonly what: string;
  /** Takes a measurement, which may take minutes. */
  readonly read: (signal: AbortSignal) => Promise<T>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A measurement and its time, milliseconds since the epoch by graftlet's clock. */
export interface Reading<T> {
  readonly value: T;
  readonly at: number;
}

/** Age at which a measurement is repeated, and the maximum wait for it before the previous one is used, milliseconds. */
const freshMs = 30_000;
const patienceMs = 1_000;
/** Timeout of one measurement. */
const longestMs = 300_000;
/** Measurements keep the disk busy for at most one part in this many of the time. */
const restFactor = 20;

/** A measurement for which the daemon walks its disk: one at a time, and the less often the longer it takes. Callers wait a second for it,
 *  then use the previous one; it continues for the next caller.
 *  @returns the last measurement, undefined before the first success; rejects only if the signal aborts. */
export function createSlowReading<T>({
  what,
  read,
  clock,
  log,
}: SlowReadingOptions<T>): (signal: AbortSignal) => Promise<Reading<T> | undefined> {
  let last: Reading<T> | undefined;
  let dueAt = -Infinity;
  let underWay: Promise<void> | undefined;
  const take = async (): Promise<void> => {
    const startedAt = clock.monotonic();
    try {
      last = { value: await read(clock.within(longestMs)), at: clock.now() };
    } catch (error) {
      log.debug({ what, why: messageOf(error) }, "measurement failed; retrying later");
    }
    const now = clock.monotonic();
    dueAt = now + Math.max(freshMs, (now - startedAt) * restFactor);
    underWay = undefined;
  };
  return async (signal) => {
    if (clock.monotonic() >= dueAt) underWay ??= take();
    if (underWay) await atMost(patienceMs, underWay, clock, signal);
    return last;
  };
}

/** Waits for the work, up to a limit. */
async function atMost(ms: number, work: Promise<void>, clock: Clock, signal: AbortSignal): Promise<void> {
  const done = new AbortController();
  const waited = clock.sleep(ms, AbortSignal.any([signal, done.signal]));
  try {
    await Promise.race([work, waited]);
  } finally {
    done.abort();
    await waited.catch(() => undefined);
  }
}
