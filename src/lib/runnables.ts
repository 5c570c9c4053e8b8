import { abortError } from "./errors.ts";

/** A component that runs until its signal aborts. `ready`, if given, resolves once dependent services may start. */
export interface Runnable {
  readonly name: string;
  /** Resolves when its work is done, at the latest soon after the signal aborts. A rejection stops the whole group. */
  run(signal: AbortSignal): Promise<void>;
  ready?(signal: AbortSignal): Promise<void>;
}

/** Starts runnables in the order given, runs them until `signal` aborts or one fails, stops them in reverse order.
 *  @returns when all have ended.
 *  @throws the first failure, once everything has stopped. */
export async function runGroup(runnables: readonly Runnable[], signal: AbortSignal): Promise<void> {
  const started: { readonly stop: AbortController; readonly done: Promise<void> }[] = [];
  const failed = Promise.withResolvers<void>();
  let failure: { readonly error: unknown } | undefined;
  const fail = (error: unknown) => {
    failure ??= { error };
    failed.resolve();
  };
  const ended = new AbortController();
  const stopping = Promise.race([onAbort(signal, ended.signal), failed.promise]);
  for (const runnable of runnables) {
    if (signal.aborted || failure) break;
    const stop = new AbortController();
    started.push({ stop, done: runnable.run(stop.signal).catch(fail) });
    // A runnable that is stopped before it is ready has not failed.
    const notReady = (error: unknown) => (stop.signal.aborted ? undefined : fail(error));
    if (runnable.ready) await Promise.race([runnable.ready(stop.signal).catch(notReady), stopping]);
  }
  await stopping;
  ended.abort();
  for (const { stop, done } of started.reverse()) {
    stop.abort();
    await done;
  }
  if (failure) throw failure.error;
}

/** A runnable that does its work once at start, and then idles until its end. Work aborted by the end is not a failure.
 *  @param work may return a function that undoes it, called at the end. A rejection stops the whole group. */
export function onceThenIdle(
  name: string,
  work: (signal: AbortSignal) => Promise<Undo | void> | Undo | void,
): Runnable {
  return {
    name,
    async run(signal) {
      try {
        const undo = await work(signal);
        await onAbort(signal);
        undo?.();
      } catch (error) {
        if (!signal.aborted) throw error;
      }
    },
  };
}

type Undo = () => void;

/** Resolves when `signal` aborts; stops listening when `forget` does. */
export function onAbort(signal: AbortSignal, forget?: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true, ...(forget && { signal: forget }) });
  });
}

/** The promise's result, or the signal's reason if that aborts first. The work behind the promise continues, and its outcome
 *  is ignored. */
export function untilAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  const { promise: either, resolve, reject } = Promise.withResolvers<T>();
  const aborted = () => reject(abortError(signal));
  if (signal.aborted) aborted();
  else signal.addEventListener("abort", aborted, { once: true });
  promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", aborted));
  return either;
}

/** A signal that follows another one until it is disposed. A signal made by `AbortSignal.any` would follow it forever. */
export function forwardedAbort(signal: AbortSignal): Disposable & { readonly signal: AbortSignal } {
  const own = new AbortController();
  const follow = () => own.abort(signal.reason);
  if (signal.aborted) follow();
  else signal.addEventListener("abort", follow, { once: true });
  return { signal: own.signal, [Symbol.dispose]: () => signal.removeEventListener("abort", follow) };
}
