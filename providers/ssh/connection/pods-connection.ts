import type { Clock } from "../../../src/lib/clock.ts";
import { hasCode, throwIfAborted } from "../../../src/lib/errors.ts";
import type { Connection } from "./connection.ts";
import type { Link } from "./link.ts";

/** Pause after the target has let in no further connection, milliseconds. */
const againMs = 60_000;

/** The connection for what pods send and get: one of its own, since what waits in a connection keeps all that comes after it waiting. It is
 *  the first one while the target lets in no other.
 *  @throws unavailable while the link is down. */
export function podsConnection(
  link: Pick<Link, "connection" | "connections" | "another">,
  clock: Pick<Clock, "monotonic">,
): Link["connection"] {
  let own: Connection | undefined;
  let growAt = 0;
  return async (signal) => {
    const first = await link.connection(signal);
    if (own && own !== first && !own.lost.aborted) return own;
    own = link.connections().findLast((connection) => connection !== first);
    if (own) return own;
    if (clock.monotonic() < growAt) return first;
    try {
      own = await link.another(signal);
      return own;
    } catch (error) {
      throwIfAborted(signal);
      if (first.lost.aborted || !hasCode(error, "failed_precondition", "unavailable")) throw error;
      growAt = clock.monotonic() + againMs;
      return first;
    }
  };
}
