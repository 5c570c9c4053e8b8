/** Signals the loss of a connection to its users. */
export interface ConnectionLoss {
  readonly lost: AbortSignal;
  /** Reports the loss; later calls are ignored. */
  reportLoss(cause?: unknown): void;
  /** Registers a listener for the loss, called at once if the connection is lost already. @returns a function that removes it. */
  onLost(listener: () => void): () => void;
}

/** Streams, of which there may be thousands, use `onLost`: adding a listener to an AbortSignal takes time linear in the number of listeners.
 *  @param reasonOf turns a cause into the signal's reason. */
export function createLoss(reasonOf: (cause: unknown) => Error): ConnectionLoss {
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
    reportLoss(cause) {
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
