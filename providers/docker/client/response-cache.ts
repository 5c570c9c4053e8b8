/** Cache of the daemon's responses: they are valid while its event stream runs and reports no change. */
export interface ResponseCache {
  /** The event stream has started: changes before it are unknown. */
  start(): void;
  stop(): void;
  /** The daemon or its images may have changed. */
  invalidate(): void;
  /** Token of the current state; undefined while no event stream runs. */
  version(): number | undefined;
  /** Caches a response until the next change. */
  cached<T>(ask: (signal: AbortSignal) => Promise<T>): (signal: AbortSignal) => Promise<T>;
}

export function createResponseCache(): ResponseCache {
  let changeCount = 0;
  let isStreaming = false;
  const version = () => (isStreaming ? changeCount : undefined);
  return {
    start() {
      isStreaming = true;
      changeCount += 1;
    },
    stop: () => void (isStreaming = false),
    invalidate: () => void (changeCount += 1),
    version,
    cached<T>(ask: (signal: AbortSignal) => Promise<T>) {
      let kept: { readonly at: number; readonly answer: T } | undefined;
      return async (signal: AbortSignal) => {
        const at = version();
        if (kept && kept.at === at) return kept.answer;
        const answer = await ask(signal);
        kept = at === undefined ? undefined : { at, answer };
        return answer;
      };
    },
  };
}
