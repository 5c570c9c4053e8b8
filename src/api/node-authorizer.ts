import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";

/** Pause before a second try, milliseconds. */
const pauseMs = 250;

/** Asks once more where it was refused: the Node authorizer may learn of a new pod after its node does.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export async function onceAuthorized<T>(clock: Clock, signal: AbortSignal, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (!hasCode(error, "permission_denied")) throw error;
    await clock.sleep(pauseMs, signal);
    return ask();
  }
}
