import type { Clock } from "./clock.ts";
import type { Logger } from "./log.ts";
import { pause } from "./pause.ts";
import type { Service } from "./service-group.ts";

export interface PatrolOptions {
  readonly name: string;
  /** Pause between two rounds, milliseconds; it may depend on how long the last round took. */
  readonly everyMs: number | ((tookMs: number) => number);
  /** Pause before the first round, milliseconds; without it the first round starts at once. */
  readonly firstMs?: number;
  /** Ends a pause early when it resolves. Asked in each pause; its signal aborts with that. */
  readonly news?: (signal: AbortSignal) => Promise<void>;
  /** Awaited before each round; resolves to a signal that aborts when the connection to the target is lost. */
  readonly presence?: (signal: AbortSignal) => Promise<AbortSignal>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A service that repeats a round of work until it ends. A failed round is logged and followed by the next one as usual; a round
 *  that was cut off by the end of the service, or by the loss of the target, is not a failure.
 *  @param round its signal aborts on either. */
export function patrol(
  { name, everyMs, firstMs, news, presence, clock, log }: PatrolOptions,
  round: (signal: AbortSignal) => Promise<void> | void,
): Service {
  const once = async (signal: AbortSignal) => {
    const lost = presence && (await presence(signal).catch(() => undefined));
    const either = lost ? AbortSignal.any([signal, lost]) : signal;
    const began = clock.monotonic();
    try {
      if (!either.aborted) await round(either);
    } catch (err) {
      if (!either.aborted) log.warn({ err }, `${name} failed, will try again`);
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
