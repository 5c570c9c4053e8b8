import type { Clock } from "../../../src/lib/clock.ts";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Connection } from "./connection.ts";
import type { Link } from "./link.ts";

/** Delay before retrying to open another connection after the target has refused one, milliseconds. */
const openRetryDelayMs = 60_000;

/** Returns a separate SSH connection for pods' traffic, to avoid head-of-line blocking of the node's own traffic. Falls back to the first
 *  connection while the target accepts no other.
 *  @throws unavailable while the link is down. */
export function podsConnection(
  link: Pick<Link, "connection" | "connections" | "openAnother">,
  clock: Pick<Clock, "monotonic">,
): Link["connection"] {
  let own: Connection | undefined;
  let nextOpenAt = 0;
  return async (signal) => {
    const first = await link.connection(signal);
    if (own && own !== first && !own.lost.aborted) return own;
    own = link.connections().findLast((connection) => connection !== first);
    if (own) return own;
    if (clock.monotonic() < nextOpenAt) return first;
    try {
      own = await link.openAnother(signal);
      return own;
    } catch (error) {
      throwIfAborted(signal);
      if (first.lost.aborted || !hasCode(error, "failed_precondition", "unavailable")) throw error;
      nextOpenAt = clock.monotonic() + openRetryDelayMs;
      return first;
    }
  };
}
