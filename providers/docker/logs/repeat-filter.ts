import type { LogLine } from "../../../src/seams/runtime.ts";

/** Remembered lines per stream: more than are written until the daemon notices a rotation. */
const rememberedLines = 16_384;

type Line = Pick<LogLine, "time" | "stream" | "text" | "partial">;

interface StreamPosition {
  /** Times of the latest lines, oldest first. */
  readonly recentTimes: Set<string>;
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
  const streams = { stdout: startOfStream(), stderr: startOfStream() };
  return ({ time, stream, text, partial }) => {
    const position = streams[stream];
    if (time < position.last && position.recentTimes.has(time)) {
      position.repeated = position.atLast;
      return false;
    }
    if (time === position.last && position.repeated > 0) {
      position.repeated -= 1;
      return false;
    }
    if (time === position.last && position.ended && position.first?.equals(text)) {
      position.repeated = position.atLast - 1;
      return false;
    }
    if (time !== position.last) position.first = text;
    position.atLast = time === position.last ? position.atLast + 1 : 1;
    position.ended = !partial;
    position.repeated = 0;
    position.last = time;
    remember(position.recentTimes, time);
    return true;
  };
}

function startOfStream(): StreamPosition {
  return { recentTimes: new Set(), last: "", atLast: 0, first: undefined, ended: false, repeated: 0 };
}

function remember(shown: Set<string>, time: string): void {
  shown.add(time);
  if (shown.size <= rememberedLines) return;
  for (const oldest of shown) {
    shown.delete(oldest);
    return;
  }
}
