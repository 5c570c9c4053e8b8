import type { LogLine } from "../../../src/seams/runtime.ts";

/** Remembered lines per stream: more than are written until the daemon notices a rotation. */
const rememberedLines = 16_384;

type Line = Pick<LogLine, "time" | "stream" | "text" | "partial">;

interface Progress {
  /** Times of the latest lines, oldest first. */
  readonly shown: Set<string>;
  last: string;
  /** Number of lines with the time `last`: parts of a long line share theirs. */
  atLast: number;
  /** Text of the first of them. */
  first: Buffer | undefined;
  /** True when the latest of them ended its line. */
  ended: boolean;
  /** Number of them still to be skipped. */
  repeated: number;
}

/** Filters repeated lines out of a followed log: Docker Engine 20.10 repeats a file's first lines after rotation. Times
 *  only grow within a stream: an earlier time seen before is a repetition; one not seen before means that the clock was
 *  set back. A repeat of the latest line is recognized by time and text; parts of a long line share their time and are
 *  distinguished by which part ended the line. */
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
