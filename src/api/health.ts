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

/** Follows the outcome of requests, and logs once when the server goes away and once when it is back. */
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
        if (state.is === "down") log.info({}, "the API server answers again");
        become({ is: "up" });
      },
      failed(err) {
        if (state.is === "down") return;
        log.warn({ err }, "the API server does not answer; trying on");
        become({ is: "down", why: messageOf(err) });
      },
    },
  };
}
