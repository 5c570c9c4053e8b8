import type { Clock, Timer } from "../lib/clock.ts";
import { abortError } from "../lib/errors.ts";

/** Throttles writes while the API server cannot accept them: retries for a hundred pods would keep it from recovering. */
export type WriteThrottle = ReturnType<typeof createWriteThrottle>;

/** Interval between writes to a server that could not accept the last one, milliseconds. */
const writeIntervalMs = 500;

/** Each successful write releases queued ones: first one, then two, then four, as long as none fails. The number grows gradually,
 *  because a server that answers one write may not be able to store the next. */
export function createWriteThrottle(clock: Clock) {
  const waiting = new Set<() => void>();
  let timer: Timer | undefined;
  let isOn = false;
  let nextAt = 0;
  /** Number of writes released by the next successful write. */
  let followers = 1;
  const schedule = () => {
    if (waiting.size > 0) timer ??= clock.after(nextAt - clock.monotonic(), letOneThrough);
  };
  const letOneThrough = () => {
    timer = undefined;
    const [next] = waiting;
    nextAt = clock.monotonic() + writeIntervalMs;
    next?.();
    schedule();
  };
  const release = () => {
    for (const go of [...waiting].slice(0, followers)) go();
    followers *= 2;
    if (waiting.size > 0) return;
    isOn = false;
    timer?.cancel();
    timer = undefined;
  };
  return {
    /** Resolves, in order of the calls, when a write may start: immediately while writes succeed. Rejects when the signal aborts. */
    wait(signal: AbortSignal) {
      if (signal.aborted) return Promise.reject(abortError(signal));
      if (!isOn) return Promise.resolve();
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const leave = (settle: () => void) => {
        signal.removeEventListener("abort", giveUp);
        waiting.delete(go);
        settle();
      };
      const go = () => leave(resolve);
      const giveUp = () => leave(() => reject(abortError(signal)));
      signal.addEventListener("abort", giveUp, { once: true });
      waiting.add(go);
      schedule();
      return promise;
    },
    /** Reports the outcome of a write.
     *  @param well true if the API server accepted the write, or rejected it as invalid. */
    ended(well: boolean) {
      if (well) return isOn ? release() : undefined;
      if (!isOn) nextAt = clock.monotonic() + writeIntervalMs;
      isOn = true;
      followers = 1;
    },
  };
}
