/** Takes things in at any time, and handles them one after the other. */
export interface Inbox<T> {
  /** Never waits. */
  push(item: T): void;
  /** Nothing waits, and nothing is being handled. */
  isEmpty(): boolean;
  /** Handles what comes, until the signal aborts. @param handle must not reject. */
  run(handle: (item: T) => Promise<void>, signal: AbortSignal): Promise<void>;
}

export function createInbox<T extends object>(): Inbox<T> {
  const queue: T[] = [];
  let wakeUp = Promise.withResolvers<void>();
  let busy = false;
  return {
    push(item) {
      queue.push(item);
      wakeUp.resolve();
    },
    isEmpty: () => queue.length === 0 && !busy,
    async run(handle, signal) {
      signal.addEventListener("abort", () => wakeUp.resolve(), { once: true });
      while (!signal.aborted) {
        const item = queue.shift();
        if (item) {
          busy = true;
          await handle(item);
          busy = false;
        } else {
          wakeUp = Promise.withResolvers<void>();
          if (queue.length === 0 && !signal.aborted) await wakeUp.promise;
        }
      }
    },
  };
}
