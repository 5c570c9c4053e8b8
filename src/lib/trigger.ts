import type { Clock } from "./clock.ts";
import { pause, waitIsOver } from "./pause.ts";

/** Wakes a waiting loop. A trigger that fires while the loop is not waiting is kept for the next wait. */
export function createTrigger() {
  let pending = false;
  let wake = () => {};
  /** Ends the previous wait, which goes on if its loop was woken by something else. */
  let forget = () => {};
  const fired = (signal: AbortSignal): Promise<void> => {
    forget();
    if (pending || signal.aborted) {
      if (!signal.aborted) pending = false;
      return Promise.resolve();
    }
    const { promise, resolve } = Promise.withResolvers<void>();
    forget = () => {
      signal.removeEventListener("abort", forget);
      wake = () => {};
      resolve();
    };
    wake = () => {
      if (signal.aborted) return;
      pending = false;
      forget();
    };
    signal.addEventListener("abort", forget, { once: true });
    return promise;
  };
  return {
    fire(): void {
      pending = true;
      wake();
    },
    /** Resolves once the trigger has fired since the last wait, or when the signal aborts. A further wait ends the one before. */
    fired,
    /** Like `fired`, with a time limit in milliseconds (undefined: none). If the trigger fires after the limit, the next wait ends at once. */
    async firedWithin(clock: Pick<Clock, "sleep">, ms: number | undefined, signal: AbortSignal): Promise<void> {
      const over = new AbortController();
      await pause(clock, ms, fired(AbortSignal.any([signal, over.signal])), signal);
      over.abort(waitIsOver);
    },
  };
}
