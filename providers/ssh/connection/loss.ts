/** Signals the loss of a connection to its users. */
export interface Loss {
  readonly lost: AbortSignal;
  /** Reports the loss; later calls are ignored. */
  lose(cause?: unknown): void;
  /** Registers a listener for the loss, called at once if the connection is lost already. @returns a function that removes it. */
  onLost(listener: () => void): () => void;
}

/** Streams, of which there may be thousands, use `onLost`: adding a listener to an AbortSignal takes time linear in the number of listeners.
 *  @param reasonOf turns a cause into the signal's reason. */
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
