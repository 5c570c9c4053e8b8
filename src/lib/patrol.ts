import type { Clock } from "./clock.ts";
import type { Logger } from "./log.ts";
import { pause } from "./pause.ts";
import type { Service } from "./service-group.ts";

export interface PatrolOptions {
  readonly name: string;
  /** Delay between two runs, milliseconds; may depend on how long the last run took. */
  readonly everyMs: number | ((tookMs: number) => number);
  /** Delay before the first run, milliseconds; by default it starts at once. */
  readonly firstMs?: number;
  /** Ends a delay early when it resolves. Called in each delay; its signal aborts at the end of the delay. */
  readonly news?: (signal: AbortSignal) => Promise<void>;
  /** Awaited before each run; resolves to a signal that aborts when the connection to the target is lost. */
  readonly waitForTarget?: (signal: AbortSignal) => Promise<AbortSignal>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A service that runs a function periodically until it ends, like wait.Until. A failed run is logged, and the next one
 *  follows as usual; a run aborted by the end of the service or the loss of the target is not a failure.
 *  @param round the function; its signal aborts on either. */
export function patrol(
  { name, everyMs, firstMs, news, waitForTarget, clock, log }: PatrolOptions,
  round: (signal: AbortSignal) => Promise<void> | void,
): Service {
  const once = async (signal: AbortSignal) => {
    const lost = waitForTarget && (await waitForTarget(signal).catch(() => undefined));
    const either = lost ? AbortSignal.any([signal, lost]) : signal;
    const began = clock.monotonic();
    try {
      if (!either.aborted) await round(either);
    } catch (err) {
      if (!either.aborted) log.warn({ err }, `${name} failed; retrying`);
    }
    return clock.monotonic() - began;
  };
  return {
    name,
    async run(signal) {
      const rest = async (ms: number) => {
        if (!news) return clock.sleep(ms, signal).catch(() => undefined);
        const over = new AbortController();
        await pause(clock, ms, news(over.signal), signal);
        over.abort();
      };
      if (firstMs !== undefined) await rest(firstMs);
      while (!signal.aborted) {
        const tookMs = await once(signal);
        await rest(typeof everyMs === "number" ? everyMs : everyMs(tookMs));
      }
    },
  };
}
