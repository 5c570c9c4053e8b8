import { onAbort } from "../../src/lib/runnables.ts";
import type { RuntimeEvent } from "../../src/seams/runtime.ts";

/** Events of the fake runtime, to as many listeners as there are. */
export interface FakeEvents {
  emit(event: RuntimeEvent): void;
  /** Breaks every stream under way. */
  breakAll(error: Error): void;
  listen(signal: AbortSignal): AsyncGenerator<RuntimeEvent>;
}

interface Listener {
  readonly waiting: RuntimeEvent[];
  error?: Error;
  wake: () => void;
}

export function createFakeEvents(): FakeEvents {
  const listeners = new Set<Listener>();
  const tell = (change: (listener: Listener) => void) => {
    for (const listener of listeners) {
      change(listener);
      listener.wake();
    }
  };
  return {
    emit: (event) => tell(({ waiting }) => waiting.push(event)),
    breakAll: (error) =>
      tell((listener) => {
        listener.error = error;
      }),
    async *listen(signal) {
      const listener: Listener = { waiting: [{ kind: "listening" }], wake: () => {} };
      listeners.add(listener);
      const ended = new AbortController();
      const aborted = onAbort(signal, ended.signal);
      try {
        while (!signal.aborted) {
          yield* listener.waiting.splice(0);
          if (listener.error) throw listener.error;
          if (listener.waiting.length > 0) continue;
          const { promise, resolve } = Promise.withResolvers<void>();
          listener.wake = resolve;
          await Promise.race([promise, aborted]);
        }
      } finally {
        ended.abort();
        listeners.delete(listener);
      }
    },
  };
}
