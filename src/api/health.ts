import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createSignal } from "../lib/signal.ts";

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
  const changed = createSignal<[state: ApiHealth]>();
  const setState = (next: ApiHealth) => {
    state = next;
    changed.send(next);
  };
  return {
    reader: { state: () => state, onChange: changed.subscribe },
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
