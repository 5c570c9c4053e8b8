/** A queue that accepts items at any time and handles them one at a time. */
export interface SerialQueue<T> {
  /** Never waits. */
  push(item: T): void;
  /** True when the queue is empty and nothing is being handled. */
  isIdle(): boolean;
  /** Handles items until the signal aborts. */
  run(work: SerialQueueHandler<T>, signal: AbortSignal): Promise<void>;
}

export interface SerialQueueHandler<T> {
  /** Must not reject. */
  handle(item: T): Promise<void>;
  /** Called for each item after it was handled. */
  handled?(item: T): void;
}

export function createSerialQueue<T extends object>(): SerialQueue<T> {
  const queue: T[] = [];
  let wakeUp = Promise.withResolvers<void>();
  let busy = false;
  return {
    push(item) {
      queue.push(item);
      wakeUp.resolve();
    },
    isIdle: () => queue.length === 0 && !busy,
    async run(work, signal) {
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
