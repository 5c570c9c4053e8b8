/** A semaphore: at most `limit` tasks run at once; the others wait in FIFO order. */
export function createSemaphore(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = limit;
  return async (work) => {
    if (free > 0) free -= 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      // The permit is handed to the next waiter without being released, so no other caller can slip in.
      const next = waiting.shift();
      if (next) next();
      else free += 1;
    }
  };
}
