/** Signals the loss of a connection to its users. Streams, of which there may be thousands, use `onLost`: adding a listener to
 *  an AbortSignal takes time linear in the number of listeners. @param reasonOf turns a cause into the signal's reason. */
export function createLoss(reasonOf: (cause: unknown) => Error) {
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
    /** Reports the loss; later calls are ignored. */
    reportLoss(cause?: unknown): void {
      if (!lost.aborted) controller.abort(reasonOf(cause));
    },
    /** Registers a listener for the loss, called at once if the connection is lost already. @returns a function that removes it. */
    onLost(listener: () => void): () => void {
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
