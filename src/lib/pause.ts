import type { Clock } from "./clock.ts";
import { CodedError } from "./errors.ts";
import { onAbort } from "./runnables.ts";

/** Reason of the end of a wait that something else has ended: an error of its own for each would record a stack. */
export const waitIsOver = new CodedError("cancelled", "the wait is over");

/** Resolves after `ms` milliseconds (undefined: no limit), or earlier if `event` resolves or the signal aborts. */
export async function pause(
  clock: Pick<Clock, "sleep">,
  ms: number | undefined,
  event: Promise<unknown>,
  signal?: AbortSignal,
): Promise<void> {
  const over = new AbortController();
  const waits = [event];
  if (signal) waits.push(onAbort(signal, over.signal));
  if (ms !== undefined) waits.push(clock.sleep(ms, over.signal).catch(() => undefined));
  await Promise.race(waits);
  over.abort(waitIsOver);
}
