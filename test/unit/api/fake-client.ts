import assert from "node:assert/strict";
import type { ApiClient, CallOptions, Patch, Query, WatchEvent } from "../../../src/api/client.ts";
import { CodedError } from "../../../src/lib/errors.ts";

export interface Call {
  readonly verb: "get" | "list" | "create" | "update" | "patch" | "delete" | "watch";
  readonly path: string;
  readonly query: Query;
  readonly body?: unknown;
}

export interface FakeClient extends ApiClient {
  readonly calls: Call[];
}

/** An API client whose responses come from `answer`: it returns the response or throws the refusal. For a watch it returns an async
 *  iterable of events, such as a WatchFeed. */
export function fakeClient(answer: (call: Call, signal: AbortSignal) => unknown): FakeClient {
  const calls: Call[] = [];
  const ask = async <T>(call: Omit<Call, "query">, options: CallOptions): Promise<T> => {
    const made = { ...call, query: options.query ?? {} };
    calls.push(made);
    return (await answer(made, options.signal)) as T;
  };
  const client: FakeClient = {
    calls,
    get: (path, options) => ask({ verb: "get", path }, options),
    text: (path, options) => ask({ verb: "get", path }, options),
    list: (path, options) => ask({ verb: "list", path }, options),
    create: (path, body, options) => ask({ verb: "create", path, body }, options),
    update: (path, body, options) => ask({ verb: "update", path, body }, options),
    patch: (path, patch: Patch, options) => ask({ verb: "patch", path, body: patch.body }, options),
    delete: (path, body, options) => ask({ verb: "delete", path, body }, options),
    async *watch<T>(path: string, options: CallOptions) {
      yield* await ask<AsyncIterable<WatchEvent<T>>>({ verb: "watch", path }, options);
    },
    limited: () => client,
    health: { state: () => ({ kind: "up" }), onChange: () => () => undefined },
  };
  return client;
}

/** The body of the call with that number. */
export function bodyOf<T>(client: FakeClient, index: number): T {
  const call = client.calls[index];
  assert.ok(call, `there was no call ${index}`);
  return call.body as T;
}

/** The server's end of one watch. */
export interface WatchFeed extends AsyncIterable<WatchEvent<unknown>> {
  send(type: WatchEvent<unknown>["type"], object: unknown): void;
  /** The server ends the watch, with an error or in peace. */
  end(error?: Error): void;
}

export function watchFeed(signal: AbortSignal): WatchFeed {
  const waiting: WatchEvent<unknown>[] = [];
  let wake = Promise.withResolvers<void>();
  let ended: { readonly error: Error | undefined } | undefined;
  const end = (error?: Error) => {
    ended ??= { error };
    wake.resolve();
  };
  const abort = () => end(new CodedError("cancelled", "aborted"));
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort);
  return {
    send(type, object) {
      waiting.push({ type, object });
      wake.resolve();
    },
    end,
    async *[Symbol.asyncIterator]() {
      for (;;) {
        for (let event = waiting.shift(); event; event = waiting.shift()) yield event;
        if (ended?.error) throw ended.error;
        if (ended) return;
        await wake.promise;
        wake = Promise.withResolvers<void>();
      }
    },
  };
}

/** Lets all pending promise chains proceed. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await new Promise(setImmediate);
}

/** A logger that says nothing. */
export const silent = {
  trace: () => undefined,
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
  child: () => silent,
};
