import type { Clock } from "./clock.ts";
import type { Logger } from "./log.ts";
import { throttle } from "./throttle.ts";

/** Minimum interval between two warnings of the same kind, milliseconds. */
const minIntervalMs = 30_000;

/** A rate-limited warning, for events that clients can cause at will: logged at once, then at most every 30 s, with the newest
 *  fields and the number of `times` since the last one. */
export function createRateLimitedWarning(
  { log, clock }: { readonly log: Logger; readonly clock: Clock },
  message: string,
): (fields: object) => void {
  let times = 0;
  let newest: object = {};
  const flush = throttle(
    () => {
      log.warn({ ...newest, times }, message);
      times = 0;
    },
    minIntervalMs,
    clock,
  );
  return (fields) => {
    times += 1;
    newest = fields;
    flush();
  };
}
