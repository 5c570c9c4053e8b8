import type { ClockAndLog } from "./log.ts";
import { pause } from "./pause.ts";
import type { Runnable } from "./runnables.ts";

export interface PeriodicOptions extends ClockAndLog {
  readonly name: string;
  /** Delay between two runs, milliseconds; may depend on how long the last run took. */
  readonly intervalMs: number | ((tookMs: number) => number);
  /** Delay before the first run, milliseconds; by default it starts at once. */
  readonly initialDelayMs?: number;
  /** Ends a delay early when it resolves. Called in each delay; its signal aborts at the end of the delay. */
  readonly changed?: (signal: AbortSignal) => Promise<void>;
  /** Awaited before each run; resolves to a signal that aborts when the connection to the target is lost. */
  readonly waitForTarget?: (signal: AbortSignal) => Promise<AbortSignal>;
}

/** A service that runs a function periodically until it ends, like wait.Until. A failed run is logged, and the next one
 *  follows as usual; a run aborted by the end of the service or the loss of the target is not a failure.
 *  @param work the function; its signal aborts on either. */
export function runPeriodically(
  { name, intervalMs, initialDelayMs, changed, waitForTarget, clock, log }: PeriodicOptions,
  work: (signal: AbortSignal) => Promise<void> | void,
): Runnable {
  const runOnce = async (signal: AbortSignal) => {
    const lost = waitForTarget && (await waitForTarget(signal).catch(() => undefined));
    const either = lost ? AbortSignal.any([signal, lost]) : signal;
    const began = clock.monotonic();
    try {
      if (!either.aborted) await work(either);
    } catch (err) {
      if (!either.aborted) log.warn({ err }, `${name} failed; retrying`);
    }
    return clock.monotonic() - began;
  };
  return {
    name,
    async run(signal) {
      const waitFor = async (ms: number) => {
        if (!changed) return clock.sleep(ms, signal).catch(() => undefined);
        const over = new AbortController();
        await pause(clock, ms, changed(over.signal), signal);
        over.abort();
      };
      if (initialDelayMs !== undefined) await waitFor(initialDelayMs);
      while (!signal.aborted) {
        const tookMs = await runOnce(signal);
        await waitFor(typeof intervalMs === "number" ? intervalMs : intervalMs(tookMs));
      }
    },
  };
}
