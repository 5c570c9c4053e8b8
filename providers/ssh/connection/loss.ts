/** The loss of a connection. */
export interface Loss {
  readonly lost: AbortSignal;
  /** Reports the loss; the first time counts. */
  lose(cause?: unknown): void;
  /** Calls back when the connection is lost, at once if it is. @returns what removes the listener. */
  onLost(listener: () => void): () => void;
}

/** Creates it. Thousands of streams may listen: an AbortSignal, which the rest listens to, walks through all of its listeners for each one
 *  that is added. @param reasonOf turns a cause into the signal's reason. */
export function lossOf(reasonOf: (cause: unknown) => Error): Loss {
  const controller = new AbortController();
  const { signal: lost } = controller;
  const listeners = new Set<() => void>();
  lost.addEventListener(
    "abort",
    () => {
      for (const listener of listeners) listener();
      listeners.clear();
    },
    { once: true },
  );
  return {
    lost,
    lose(cause) {
      if (!lost.aborted) controller.abort(reasonOf(cause));
    },
    onLost(listener) {
      if (lost.aborted) {
        listener();
        return () => undefined;
      }
      const own = () => listener();
      listeners.add(own);
      return () => void listeners.delete(own);
    },
  };
}
