/** Wakes a waiting loop. A trigger that fires while the loop is not waiting is kept for the next wait. */
export interface Trigger {
  fire(): void;
  /** Resolves once the trigger has fired since the last wait, or when the signal aborts. */
  fired(signal: AbortSignal): Promise<void>;
}

/** Creates a trigger for one waiting loop. */
export function createTrigger(): Trigger {
  let pending = false;
  let wake = () => {};
  return {
    fire() {
      pending = true;
      wake();
    },
    fired(signal) {
      const { promise, resolve } = Promise.withResolvers<void>();
      wake = () => {
        if (signal.aborted) return;
        pending = false;
        wake = () => {};
        resolve();
      };
      if (pending) wake();
      signal.addEventListener("abort", () => resolve(), { once: true });
      return promise;
    },
  };
}
