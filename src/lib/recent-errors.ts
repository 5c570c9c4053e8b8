import type { Clock } from "./clock.ts";
import { warningOf } from "./log-warning.ts";
import { rfc3339 } from "./rfc3339.ts";

/** A warning or an error that was logged. */
export interface LoggedError {
  /** RFC 3339. */
  readonly at: string;
  readonly message: string;
  /** The cause that was logged with it. */
  readonly cause?: string;
}

/** The newest warnings and errors of a log. */
export interface RecentErrors {
  /** A line of the log, as JSON; kept if it is a warning or an error. */
  line(text: string): void;
  /** Those of a node, newest last. */
  of(node: string): readonly LoggedError[];
}

/** Keeps the last warnings and errors of each node. @param most number of them */
export function createRecentErrors(clock: Pick<Clock, "now">, most: number): RecentErrors {
  const kept = new Map<string, LoggedError[]>();
  return {
    line(text) {
      const told = warningOf(text);
      if (!told || told.node === "") return;
      const { node, message, cause } = told;
      const own = kept.get(node) ?? [];
      own.push({ at: rfc3339(clock.now()), message, ...(cause !== "" && { cause }) });
      if (own.length > most) own.shift();
      kept.set(node, own);
    },
    of: (node) => [...(kept.get(node) ?? [])],
  };
}
