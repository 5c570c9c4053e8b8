import { CodedError } from "../lib/errors.ts";
import type { ApiClient } from "./client.ts";

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
