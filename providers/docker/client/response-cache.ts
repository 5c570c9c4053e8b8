/** Caches responses of the daemon, which are valid while its event stream runs and reports no change. */
export type ResponseCache = ReturnType<typeof createResponseCache>;

export function createResponseCache() {
  let changeCount = 0;
  let isStreaming = false;
  const version = () => (isStreaming ? changeCount : undefined);
  return {
    /** To be called when the event stream has started: earlier changes are unknown. */
    start(): void {
      isStreaming = true;
      changeCount += 1;
    },
    stop: () => void (isStreaming = false),
    /** To be called when the daemon or its images may have changed. */
    invalidate: () => void (changeCount += 1),
    /** Token of the current state; undefined while no event stream runs. */
    version,
    /** Caches a response until the next change. */
    cached<T>(ask: (signal: AbortSignal) => Promise<T>): (signal: AbortSignal) => Promise<T> {
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
