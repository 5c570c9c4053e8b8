import { type Clock, sleepOn } from "../../src/lib/clock.ts";
import { CodedError } from "../../src/lib/errors.ts";

export interface FakeClock extends Clock {
  /** Moves time on, running what falls due in order, and lets promises settle in between. */
  advance(ms: number): Promise<void>;
  /** Timers that still wait. */
  readonly pending: number;
}

/** A clock that stands still until it is told to move. Its jitter is always the low bound.
 *  @param startMs milliseconds since the epoch. */
export function fakeClock(startMs = Date.UTC(2026, 0, 1)): FakeClock {
  let elapsed = 0;
  let order = 0;
  const timers = new Map<number, { readonly at: number; readonly fn: () => void }>();
  const after: Clock["after"] = (ms, fn) => {
    const id = order++;
    timers.set(id, { at: elapsed + Math.max(0, ms), fn });
    return { cancel: () => void timers.delete(id) };
  };
  const earliest = (until: number) => {
    const due = [...timers].filter(([, { at }]) => at <= until).sort(([a, x], [b, y]) => x.at - y.at || a - b);
    return due[0];
  };
  return {
    now: () => startMs + elapsed,
    monotonic: () => elapsed,
    jitter: (low) => low,
    after,
    deadline: after,
    sleep: (ms, signal) => sleepOn(after, ms, signal),
    within: (ms, signal) => withinOn(after, ms, signal),
    async advance(ms) {
      const until = elapsed + ms;
      await settle();
      for (let next = earliest(until); next; next = earliest(until)) {
        const [id, { at, fn }] = next;
        timers.delete(id);
        elapsed = at;
        fn();
        await settle();
      }
      elapsed = until;
      await settle();
    },
    get pending() {
      return timers.size;
    },
  };
}

/** A clock's `within`, by its timers. */
export function withinOn(after: Clock["after"], ms: number, signal?: AbortSignal): AbortSignal {
  const controller = new AbortController();
  after(ms, () => controller.abort(new CodedError("deadline_exceeded", `no answer within ${ms} ms`)));
  return signal ? AbortSignal.any([signal, controller.signal]) : controller.signal;
}

/** Lets every chain of promises that can go on do so. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn++) await new Promise(setImmediate);
}
