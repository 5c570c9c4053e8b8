export interface SerialQueueHandler<T> {
  /** Must not reject. */
  handle(item: T): Promise<void>;
  /** Called for each item after it was handled. */
  handled?(item: T): void;
}

/** A queue that accepts items at any time and handles them one at a time. */
export function createSerialQueue<T extends object>() {
  const queue: T[] = [];
  let wakeUp = Promise.withResolvers<void>();
  let busy = false;
  return {
    /** Never waits. */
    push(item: T): void {
      queue.push(item);
      wakeUp.resolve();
    },
    /** True when the queue is empty and nothing is being handled. */
    isIdle: () => queue.length === 0 && !busy,
    /** Handles items until the signal aborts. */
    async run(work: SerialQueueHandler<T>, signal: AbortSignal): Promise<void> {
      signal.addEventListener("abort", () => wakeUp.resolve(), { once: true });
      while (!signal.aborted) {
        const item = queue.shift();
        if (item) {
          busy = true;
          await work.handle(item);
          busy = false;
          work.handled?.(item);
        } else {
          wakeUp = Promise.withResolvers<void>();
          if (queue.length === 0 && !signal.aborted) await wakeUp.promise;
        }
      }
    },
  };
}
