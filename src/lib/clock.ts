import { CodedError, abortError } from "./errors.ts";

/** A scheduled call that can be cancelled. Cancelling twice, or after it fired, does nothing. */
export interface Timer {
  cancel(): void;
}

/** Time and randomness as a dependency: nothing else in graftlet reads a clock, sets a timer or draws a random number. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Milliseconds from an arbitrary start; never goes back, not even when the wall clock is set. */
  monotonic(): number;
  /** A random number, uniformly from [low, high). */
  jitter(low: number, high: number): number;
  /** Calls `fn` once after `ms` milliseconds. */
  after(ms: number, fn: () => void): Timer;
  /** Calls `fn` once after a peer had `ms` milliseconds to respond. If this process was stalled, pending input is handled first and the peer
   *  is granted that time again. */
  deadline(ms: number, fn: () => void): Timer;
  /** Resolves after `ms` milliseconds; rejects at once with the signal's reason when it aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** A signal that aborts with `deadline_exceeded` after `ms` milliseconds, or earlier when `signal` does. */
  within(ms: number, signal?: AbortSignal): AbortSignal;
}

/** The longest delay of a Node.js timer, milliseconds. */
const maxTimerMs = 2 ** 31 - 1;

/** The machine's clock. Its timers keep the process alive only while something is awaited on them. */
export function systemClock(): Clock {
  const after = (ms: number, fn: () => void): Timer => {
    const timer = setTimeout(fn, Math.min(Math.max(0, ms), maxTimerMs));
    return { cancel: () => clearTimeout(timer) };
  };
  return {
    now: () => Date.now(),
    monotonic: () => performance.now(),
    jitter: (low, high) => low + Math.random() * (high - low),
    after,
    deadline: deadlineTimer,
    sleep: (ms, signal) => sleepOn(after, ms, signal),
    within: (ms, signal) => deadlineOn(ms, signal),
  };
}

/** Implements `sleep` with a clock's own timers; shared with test clocks. */
export function sleepOn(after: Clock["after"], ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.reject(abortError(signal));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = () => {
    timer.cancel();
    if (signal) reject(abortError(signal));
  };
  const timer = after(ms, () => {
    signal?.removeEventListener("abort", onAbort);
    resolve();
  });
  signal?.addEventListener("abort", onAbort, { once: true });
  return promise;
}

/** A timer that fires this late shows that the process was stalled, milliseconds. */
const stalledMs = 50;

/** Implements `deadline` with unreferenced timers, so that a call that ends early leaves nothing running. */
function deadlineTimer(ms: number, fn: () => void): Timer {
  const due = performance.now() + ms;
  let immediate: NodeJS.Immediate | undefined;
  // After the immediate, all pending input has been handled.
  const end = () => void (immediate = setImmediate(fn));
  const overdue = () => {
    const late = Math.min(performance.now() - due, ms);
    if (late < stalledMs) end();
    else timer = setTimeout(end, late).unref();
  };
  let timer = setTimeout(overdue, Math.min(ms, maxTimerMs)).unref();
  return {
    cancel() {
      clearTimeout(timer);
      clearImmediate(immediate);
    },
  };
}

/** A deadline as a signal. */
function deadlineOn(ms: number, signal?: AbortSignal): AbortSignal {
  const controller = new AbortController();
  deadlineTimer(ms, () => controller.abort(new CodedError("deadline_exceeded", `no answer within ${ms} ms`)));
  return signal ? AbortSignal.any([signal, controller.signal]) : controller.signal;
}
