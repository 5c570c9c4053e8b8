import { CodedError } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { type Runnable, onAbort } from "../lib/runnables.ts";
import type { EventSink } from "../pipeline.ts";
import type { ApiClient } from "./client.ts";
import type { NodeWatch, ServiceWatch } from "./listers.ts";

// Stand-ins for the API server on a standalone node.

/** The API client of a standalone node: there is no API server, and every method throws CodedError failed_precondition at
 *  once. */
export function absentApi(): ApiClient & AsyncDisposable {
  const refuse = () => Promise.reject(new CodedError("failed_precondition", "standalone node: there is no API server"));
  const client: ApiClient & AsyncDisposable = {
    get: refuse,
    text: refuse,
    list: refuse,
    create: refuse,
    update: refuse,
    patch: refuse,
    delete: refuse,
    // oxlint-disable-next-line require-yield
    async *watch() {
      await refuse();
    },
    limited: () => client,
    health: { state: () => ({ kind: "unknown" }), onChange: () => () => undefined },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  return client;
}

/** An event sink that writes events to the log. */
export function loggedEvents(log: Logger): EventSink & Runnable {
  return {
    name: "events",
    event: ({ kind, namespace, name }, type, reason, message) =>
      log[type === "Warning" ? "warn" : "info"](
        { about: [kind, namespace, name].filter(Boolean).join("/"), reason },
        message,
      ),
    run: onAbort,
  };
}

/** Node watch of a standalone node, which has no Node object. */
export const noNode: NodeWatch = {
  name: "no node",
  run: onAbort,
  ready: () => Promise.resolve(),
  synced: () => true,
  node: () => undefined,
  onChange: () => () => undefined,
};

/** Service watch of a standalone node, which has no Services. */
export const noServices: ServiceWatch = {
  name: "no services",
  run: onAbort,
  list: () => [],
  onChange: () => () => undefined,
};
