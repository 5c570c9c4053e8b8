/** Wakes a waiting loop. A trigger that fires while the loop is not waiting is kept for the next wait. */
export function createTrigger() {
  let pending = false;
  let wake = () => {};
  return {
    fire(): void {
      pending = true;
      wake();
    },
    /** Resolves once the trigger has fired since the last wait, or when the signal aborts. */
    fired(signal: AbortSignal): Promise<void> {
      const { promise, resolve } = Promise.withResolvers<void>();
      wake = () => {
        if (signal.aborted) return;
        pending = false;
        wake = () => {};
        resolve();
      };
      if (pending) wake();
      if (signal.aborted) resolve();
      signal.addEventListener("abort", () => resolve(), { once: true });
      return promise;
    },
  };
}
