/** A named notification from one component to others. It has no payload beyond its arguments. Sending it twice, or without a
 *  subscriber, is harmless. */
export interface Signal<A extends readonly unknown[]> {
  send(...args: A): void;
  /** @returns unsubscribes. */
  subscribe(listener: (...args: A) => void): () => void;
}

/** Creates a signal without subscribers. */
export function createSignal<A extends readonly unknown[] = []>(): Signal<A> {
  const subscribers = new Set<(...args: A) => void>();
  return {
    send: (...args) => subscribers.forEach((subscriber) => subscriber(...args)),
    subscribe(listener) {
      subscribers.add(listener);
      return () => void subscribers.delete(listener);
    },
  };
}
