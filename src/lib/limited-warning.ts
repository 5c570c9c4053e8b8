import type { Clock } from "./clock.ts";
import type { Logger } from "./log.ts";
import { paced } from "./paced.ts";

/** Minimum interval between two warnings of the same kind, milliseconds. */
const everyMs = 30_000;

/** A rate-limited warning, for events that clients can cause at will: logged at once, then at most every 30 s, with the newest
 *  fields and the number of `times` since the last one. */
export function createLimitedWarning(
  { log, clock }: { readonly log: Logger; readonly clock: Clock },
  message: string,
): (fields: object) => void {
  let times = 0;
  let newest: object = {};
  const tell = paced(
    () => {
      log.warn({ ...newest, times }, message);
      times = 0;
    },
    everyMs,
    clock,
  );
  return (fields) => {
    times += 1;
    newest = fields;
    tell();
  };
}
