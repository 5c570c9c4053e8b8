import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";

/** Reachability of the API server. `unknown` until the first request has ended. */
export type ApiHealth =
  | { readonly is: "unknown" }
  | { readonly is: "up" }
  | { readonly is: "down"; readonly why: string };

export interface HealthReader {
  state(): ApiHealth;
  /** Calls back on every change. @returns a function that stops it. */
  onChange(fn: (state: ApiHealth) => void): () => void;
}

export interface HealthWriter {
  answered(): void;
  failed(error: unknown): void;
}

/** Tracks the outcome of requests, and logs once when the server becomes unreachable and once when it responds again. */
export function createHealth(log: Logger): { readonly reader: HealthReader; readonly writer: HealthWriter } {
  let state: ApiHealth = { is: "unknown" };
  const listeners = new Set<(state: ApiHealth) => void>();
  const become = (next: ApiHealth) => {
    state = next;
    for (const listener of listeners) listener(next);
  };
  return {
    reader: {
      state: () => state,
      onChange(fn) {
        listeners.add(fn);
        return () => void listeners.delete(fn);
      },
    },
    writer: {
      answered() {
        if (state.is === "up") return;
        if (state.is === "down") log.info({}, "the API server is reachable again");
        become({ is: "up" });
      },
      failed(err) {
        if (state.is === "down") return;
        log.warn({ err }, "the API server is unreachable; retrying");
        become({ is: "down", why: messageOf(err) });
      },
    },
  };
}
