import type { ApiClient } from "../api/client.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";

/** The API requests of `graftlet leave`; all may be repeated. */
export type LeaveClient = Pick<ApiClient, "get" | "list" | "patch" | "delete">;

const retryDelayMs = 2_000;
/** Timeout of an outage, milliseconds: enough to restart an API server, or to switch to another one behind a load balancer. */
const outageTimeoutMs = 60_000;

/** Adds retries to a client: requests to an API server that does not answer are repeated for a minute.
 *  @param say called once per outage. */
export function retryingClient(client: LeaveClient, clock: Clock, say: (line: string) => void): LeaveClient {
  const until = async <T>(ask: () => Promise<T>, signal: AbortSignal): Promise<T> => {
    const deadline = clock.monotonic() + outageTimeoutMs;
    for (let isReported = false; ; isReported = true) {
      try {
        return await ask();
      } catch (error) {
        if (!hasCode(error, "unavailable") || clock.monotonic() >= deadline) throw error;
        if (!isReported) say(`the API server does not answer; retrying: ${messageOf(error)}`);
      }
      await clock.sleep(retryDelayMs, signal);
    }
  };
  return {
    get: (path, options) => until(() => client.get(path, options), options.signal),
    list: (path, options) => until(() => client.list(path, options), options.signal),
    patch: (path, patch, options) => until(() => client.patch(path, patch, options), options.signal),
    delete: (path, body, options) => until(() => client.delete(path, body, options), options.signal),
  };
}
