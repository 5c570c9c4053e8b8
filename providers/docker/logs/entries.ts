import { CodedError } from "../../../src/lib/errors.ts";
import type { LogLine } from "../../../src/seams/runtime.ts";
import { createFrames } from "../client/frames.ts";

/** Parses the daemon's response to a logs request. */
export interface LogEntries {
  /** The entries that one more block completes. */
  take(block: Buffer): Iterable<LogLine>;
  /** The entry that is complete only at the end of the response. */
  rest(): Iterable<LogLine>;
}

/** RFC 3339 in UTC with nine decimals, and a space. */
const stamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z /;
const stampLength = "2026-01-02T03:04:05.000000000Z ".length;
/** Minimum length of a partial line: the daemon splits lines there. */
const pieceBytes = 16 * 1024;
/** Limit that bounds memory; no daemon writes longer entries, and they are dropped. */
const longestEntryBytes = 1024 * 1024;
const newline = 0x0a;

/** Entries of a container without a terminal: one frame each. The iteration throws CodedError unknown with the daemon's message if it
 *  cannot read the log. */
export function framedEntries(): LogEntries {
  const frames = createFrames();
  let parts: Buffer[] = [];
  let held = 0;
  function* take(block: Buffer): Generator<LogLine> {
    for (const { kind, bytes, last } of frames(block)) {
      held += bytes.length;
      if (held <= longestEntryBytes) parts.push(last ? bytes : Buffer.from(bytes));
      if (!last) continue;
      const entry = parts.length === 1 ? parts[0] : Buffer.concat(parts);
      const isWhole = held <= longestEntryBytes;
      [parts, held] = [[], 0];
      if (isWhole && entry) yield lineOf(entry, kind === "stderr" || kind === "system" ? "stderr" : "stdout");
    }
  }
  return { take, rest: () => [] };
}

/** Entries of a container with a terminal: unframed, one line each; each part of a split line has its own timestamp. */
export function terminalEntries(): LogEntries {
  let held = Buffer.alloc(0);
  function* take(block: Buffer): Generator<LogLine> {
    held = held.length === 0 ? Buffer.from(block) : Buffer.concat([held, block]);
    let start = 0;
    for (;;) {
      const rest = held.subarray(start);
      const end = entryEnd(rest);
      if (end === undefined) break;
      yield lineOf(rest.subarray(0, end), "stdout");
      start += end;
    }
    held = held.subarray(start);
  }
  return { take, rest: () => (held.length > 0 ? [lineOf(held, "stdout")] : []) };
}

/** Length of the first entry; undefined while it is incomplete. */
function entryEnd(text: Buffer): number | undefined {
  const lineEnd = text.indexOf(newline) + 1;
  const line = lineEnd > 0 ? text.subarray(0, lineEnd) : text;
  const nextStamp = stampFrom(line, stampLength + pieceBytes);
  if (nextStamp !== undefined) return nextStamp;
  if (lineEnd > 0) return lineEnd;
  return line.length > longestEntryBytes ? line.length : undefined;
}

/** Position of the first timestamp at or after `from`. Invalid UTF-8 grows up to threefold in the daemon's response, so a part may be
 *  longer than the split length. */
function stampFrom(line: Buffer, from: number): number | undefined {
  const last = Math.min(line.length, stampLength + 3 * pieceBytes + stampLength);
  for (let end = line.indexOf("Z ", from); end >= 0 && end + 2 <= last; end = line.indexOf("Z ", end + 1)) {
    const at = end + 2 - stampLength;
    if (at >= from && stamp.test(line.toString("latin1", at, end + 2))) return at;
  }
  return undefined;
}

function lineOf(entry: Buffer, stream: LogLine["stream"]): LogLine {
  const head = entry.toString("latin1", 0, stampLength);
  if (!stamp.test(head)) throw new CodedError("unknown", entry.toString().trim());
  const text = entry.subarray(stampLength);
  return { time: head.trimEnd(), stream, text, partial: text[text.length - 1] !== newline };
}
