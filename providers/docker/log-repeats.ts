import type { LogLine } from "../../src/seams/runtime.ts";

/** How many lines of each stream are remembered: more than are written while a daemon finds out about a rotation. */
const rememberedLines = 16_384;

interface Progress {
  /** Times of the lines shown last, oldest first. */
  readonly shown: Set<string>;
  last: string;
  /** How many lines with the time `last` have been shown: parts of a long line share theirs. */
  atLast: number;
  /** How many of those are still to be left out. */
  repeated: number;
}

/** Tells lines that are new from those that came already: while it follows a log, a Docker Engine of version 20.10 gives the
 *  first lines of a file again when it has rotated. Within a stream times only grow; one that is back among those shown is a
 *  repetition, and one that is not means that the machine's clock was set back. */
export function createRepeatFilter(): (line: Pick<LogLine, "time" | "stream">) => boolean {
  const streams = { stdout: progress(), stderr: progress() };
  return ({ time, stream }) => {
    const seen = streams[stream];
    if (time < seen.last && seen.shown.has(time)) {
      seen.repeated = seen.atLast;
      return false;
    }
    if (time === seen.last && seen.repeated > 0) {
      seen.repeated -= 1;
      return false;
    }
    seen.atLast = time === seen.last ? seen.atLast + 1 : 1;
    seen.repeated = 0;
    seen.last = time;
    remember(seen.shown, time);
    return true;
  };
}

function progress(): Progress {
  return { shown: new Set(), last: "", atLast: 0, repeated: 0 };
}

function remember(shown: Set<string>, time: string): void {
  shown.add(time);
  if (shown.size <= rememberedLines) return;
  for (const oldest of shown) {
    shown.delete(oldest);
    return;
  }
}
