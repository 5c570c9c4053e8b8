import type { Clock, Timer } from "../lib/clock.ts";
import { abortError } from "../lib/errors.ts";

/** Holds writes back while the API server cannot take them: a hundred pods that each try again would keep it from coming round. */
export interface WriteBrake {
  /** Resolves, in order of asking, when a write may be made: at once while writes go well. Rejects when the signal aborts. */
  wait(signal: AbortSignal): Promise<void>;
  /** Reports the outcome of a write.
   *  @param well true when the API server accepted the write, or refused it for the write's own sake. */
  ended(well: boolean): void;
}

/** Milliseconds between writes to a server that could not take the last one. */
const everyMs = 500;

/** Once a write goes well those that wait follow: one, then two, then four, as long as none goes wrong. A server that takes one may
 *  not take the next, and one that refuses a write for its own sake has not taken any. */
export function createWriteBrake(clock: Clock): WriteBrake {
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
    nextAt = clock.monotonic() + everyMs;
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
    wait(signal) {
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
    ended(well) {
      if (well) return isOn ? release() : undefined;
      if (!isOn) nextAt = clock.monotonic() + everyMs;
      isOn = true;
      followers = 1;
    },
  };
}
