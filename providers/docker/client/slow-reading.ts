import type { Clock } from "../../../src/lib/clock.ts";
import { messageOf } from "../../../src/lib/errors.ts";
import type { Logger } from "../../../src/lib/log.ts";

export interface SlowReadingOptions<T> {
  /** What is read, for the log. */
  readonly what: string;
  /** Takes a reading; may take minutes. */
  readonly read: (signal: AbortSignal) => Promise<T>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A reading and when it was taken, milliseconds since the epoch by graftlet's clock. */
export interface Reading<T> {
  readonly value: T;
  readonly at: number;
}

/** How old a reading may be, and how long one is waited for before the last known is good enough, milliseconds. */
const freshMs = 30_000;
const patienceMs = 1_000;
/** A reading that takes longer is given up. */
const longestMs = 300_000;
/** Readings may keep the disk busy for one part in so many of the time. */
const restFactor = 20;

/** Something that costs the daemon a walk over its disk: read by one at a time and not often, the less often the longer it
 *  takes; callers wait a second for it and then go on with the last known. The reading goes on for the next caller.
 *  @returns the last reading, undefined where none has succeeded yet; rejects only when the signal aborts. */
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
      log.debug({ what, why: messageOf(error) }, "not read, will be tried again");
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

/** Waits for the work, but not for long. */
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
