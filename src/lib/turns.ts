/** Lets at most `limit` pieces of work run at once; the others wait in the order in which they came. */
export function createTurns(limit: number): <T>(work: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = [];
  let free = limit;
  return async (work) => {
    if (free > 0) free -= 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      // A turn is passed on without being given back, so no other caller can slip in between.
      const next = waiting.shift();
      if (next) next();
      else free += 1;
    }
  };
}
