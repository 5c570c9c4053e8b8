import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";

/** Reachability of the API server. `unknown` until the first request has ended. */
export type ApiHealth =
  | { readonly kind: "unknown" }
  | { readonly kind: "up" }
  | { readonly kind: "down"; readonly why: string };

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
  let state: ApiHealth = { kind: "unknown" };
  const listeners = new Set<(state: ApiHealth) => void>();
  const setState = (next: ApiHealth) => {
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
        if (state.kind === "up") return;
        if (state.kind === "down") log.info({}, "the API server is reachable again");
        setState({ kind: "up" });
      },
      failed(err) {
        if (state.kind === "down") return;
        log.warn({ err }, "the API server is unreachable; retrying");
        setState({ kind: "down", why: messageOf(err) });
      },
    },
  };
}
