import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";

/** Delay before the retry, milliseconds. */
const retryDelayMs = 250;

/** Retries once if forbidden: the Node authorizer may learn of a new pod later than its node.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export async function retryForbidden<T>(clock: Clock, signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!hasCode(error, "permission_denied")) throw error;
    await clock.sleep(retryDelayMs, signal);
    return ask();
  }
}
