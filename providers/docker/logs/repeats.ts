import type { LogLine } from "../../../src/seams/runtime.ts";

/** How many lines of each stream are remembered: more than are written while a daemon finds out about a rotation. */
const rememberedLines = 16_384;

type Line = Pick<LogLine, "time" | "stream" | "text" | "partial">;

interface Progress {
  /** Times of the lines shown last, oldest first. */
  readonly shown: Set<string>;
  last: string;
  /** How many lines with the time `last` have been shown: parts of a long line share theirs. */
  atLast: number;
  /** What the first of those says. */
  first: Buffer | undefined;
  /** Whether the latest of those ended its line. */
  ended: boolean;
  /** How many of those are still to be left out. */
  repeated: number;
}

/** Tells lines that are new from those that came already: while it follows a log, a Docker Engine of version 20.10 gives the
 *  first lines of a file again when it has rotated. Within a stream times only grow; one that is back among those shown is a
 *  repetition, and one that is not means that the machine's clock was set back. The latest line, given again, is known by its
 *  time and text; a long line's parts share their time, and are told apart by which of them ended the line. */
export function createRepeatFilter(): (line: Line) => boolean {
  const streams = { stdout: progress(), stderr: progress() };
  return ({ time, stream, text, partial }) => {
    const seen = streams[stream];
    if (time < seen.last && seen.shown.has(time)) {
      seen.repeated = seen.atLast;
      return false;
    }
    if (time === seen.last && seen.repeated > 0) {
      seen.repeated -= 1;
      return false;
    }
    if (time === seen.last && seen.ended && seen.first?.equals(text)) {
      seen.repeated = seen.atLast - 1;
      return false;
    }
    if (time !== seen.last) seen.first = text;
    seen.atLast = time === seen.last ? seen.atLast + 1 : 1;
    seen.ended = !partial;
    seen.repeated = 0;
    seen.last = time;
    remember(seen.shown, time);
    return true;
  };
}

function progress(): Progress {
  return { shown: new Set(), last: "", atLast: 0, first: undefined, ended: false, repeated: 0 };
}

function remember(shown: Set<string>, time: string): void {
  shown.add(time);
  if (shown.size <= rememberedLines) return;
  for (const oldest of shown) {
    shown.delete(oldest);
    return;
  }
}
