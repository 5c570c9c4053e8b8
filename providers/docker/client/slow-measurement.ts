import { messageOf, throwIfAborted } from "../../../src/lib/errors.ts";
import type { ClockAndLog } from "../../../src/lib/log.ts";
import { pause } from "../../../src/lib/pause.ts";

export interface SlowMeasurementOptions<T> extends ClockAndLog {
  /** Name of the measurement, for the log. */
  readonly what: string;
  /** Takes a measurement, which may take minutes. */
  readonly read: (signal: AbortSignal) => Promise<T>;
}

/** A measurement and its time, milliseconds since the epoch by graftlet's clock. */
export interface Measurement<T> {
  readonly value: T;
  readonly at: number;
}

/** Age at which a measurement is repeated, and the maximum wait for it before the previous one is used, milliseconds. */
const maxAgeMs = 30_000;
const waitTimeoutMs = 1_000;
const measurementTimeoutMs = 300_000;
/** After a measurement, the next one waits for this many times its duration, so that the disk is not busy all the time. */
const restFactor = 20;

/** Takes a measurement for which the Docker daemon walks its disk. Only one runs at a time; the longer it takes, the later the
 *  next one starts. Callers wait for up to a second and then use the previous result; the measurement continues for the next
 *  caller.
 *  @returns the last measurement, undefined before the first success; rejects only if the signal aborts. */
export function createSlowMeasurement<T>({
  what,
  read,
  clock,
  log,
}: SlowMeasurementOptions<T>): (signal: AbortSignal) => Promise<Measurement<T> | undefined> {
  let last: Measurement<T> | undefined;
  let dueAt = -Infinity;
  let running: Promise<void> | undefined;
  const measure = async (): Promise<void> => {
    const startedAt = clock.monotonic();
    try {
      last = { value: await read(clock.within(measurementTimeoutMs)), at: clock.now() };
    } catch (error) {
      log.debug({ what, why: messageOf(error) }, "cannot measure Docker's disk usage; retrying later");
    }
    const now = clock.monotonic();
    dueAt = now + Math.max(maxAgeMs, (now - startedAt) * restFactor);
    running = undefined;
  };
  return async (signal) => {
    if (clock.monotonic() >= dueAt) running ??= measure();
    if (running) await pause(clock, waitTimeoutMs, running, signal);
    throwIfAborted(signal);
    return last;
  };
}
