import type { Clock } from "./clock.ts";
import { CodedError } from "./errors.ts";
import { onAbort } from "./runnables.ts";

/** Abort reason of all waits that are no longer needed. They share it because each new error records a stack. */
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
