import type { Clock } from "./clock.ts";
import type { Logger } from "./log.ts";
import { paced } from "./paced.ts";

/** How often the same is told at most, milliseconds. */
const everyMs = 30_000;

/** A warning that others can cause as often as they like: told at once, then at most every 30 s, with the newest fields and how many
 *  `times` since it was told last. */
export function createSeldomWarning(
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
