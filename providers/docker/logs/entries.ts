import { CodedError } from "../../../src/lib/errors.ts";
import type { LogLine } from "../../../src/seams/runtime.ts";
import { createFrames } from "../client/frames.ts";

/** Parses the daemon's response to a logs request. */
export interface LogEntryParser {
  /** The entries that one more block completes. */
  parse(block: Buffer): Iterable<LogLine>;
  /** The entry that is complete only at the end of the response. */
  flush(): Iterable<LogLine>;
}

/** RFC 3339 in UTC with nine decimals, and a space. */
const timestamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z /;
const timestampLength = "2026-01-02T03:04:05.000000000Z ".length;
/** Minimum length of a partial line: the daemon splits lines there. */
const partialLineBytes = 16 * 1024;
/** Limit that bounds memory; no daemon writes longer entries, and they are dropped. */
const maxEntryBytes = 1024 * 1024;
const newline = 0x0a;

/** Entries of a container without a terminal: one frame each. The iteration throws CodedError unknown with the daemon's message if it
 *  cannot read the log. */
export function createFramedParser(): LogEntryParser {
  const frames = createFrames();
  let parts: Buffer[] = [];
  let bufferedBytes = 0;
  function* parse(block: Buffer): Generator<LogLine> {
    for (const { kind, bytes, last } of frames(block)) {
      bufferedBytes += bytes.length;
      if (bufferedBytes <= maxEntryBytes) parts.push(last ? bytes : Buffer.from(bytes));
      if (!last) continue;
      const entry = parts.length === 1 ? parts[0] : Buffer.concat(parts);
      const isWhole = bufferedBytes <= maxEntryBytes;
      [parts, bufferedBytes] = [[], 0];
      if (isWhole && entry) yield parseLine(entry, kind === "stderr" || kind === "system" ? "stderr" : "stdout");
    }
  }
  return { parse, flush: () => [] };
}

/** Entries of a container with a terminal: unframed, one line each; each part of a split line has its own timestamp. */
export function createTerminalParser(): LogEntryParser {
  let buffered = Buffer.alloc(0);
  function* parse(block: Buffer): Generator<LogLine> {
    buffered = buffered.length === 0 ? Buffer.from(block) : Buffer.concat([buffered, block]);
    let start = 0;
    for (;;) {
      const rest = buffered.subarray(start);
      const end = entryEnd(rest);
      if (end === undefined) break;
      yield parseLine(rest.subarray(0, end), "stdout");
      start += end;
    }
    buffered = buffered.subarray(start);
  }
  return { parse, flush: () => (buffered.length > 0 ? [parseLine(buffered, "stdout")] : []) };
}

/** Length of the first entry; undefined while it is incomplete. */
function entryEnd(text: Buffer): number | undefined {
  const lineEnd = text.indexOf(newline) + 1;
  const line = lineEnd > 0 ? text.subarray(0, lineEnd) : text;
  const nextStamp = timestampFrom(line, timestampLength + partialLineBytes);
  if (nextStamp !== undefined) return nextStamp;
  if (lineEnd > 0) return lineEnd;
  return line.length > maxEntryBytes ? line.length : undefined;
}

/** Position of the first timestamp at or after `from`. Invalid UTF-8 grows up to threefold in the daemon's response, so a part may be
 *  longer than the split length. */
function timestampFrom(line: Buffer, from: number): number | undefined {
  const last = Math.min(line.length, timestampLength + 3 * partialLineBytes + timestampLength);
  for (let end = line.indexOf("Z ", from); end >= 0 && end + 2 <= last; end = line.indexOf("Z ", end + 1)) {
    const at = end + 2 - timestampLength;
    if (at >= from && timestamp.test(line.toString("latin1", at, end + 2))) return at;
  }
  return undefined;
}

function parseLine(entry: Buffer, stream: LogLine["stream"]): LogLine {
  const head = entry.toString("latin1", 0, timestampLength);
  if (!timestamp.test(head)) throw new CodedError("unknown", entry.toString().trim());
  const text = entry.subarray(timestampLength);
  return { time: head.trimEnd(), stream, text, partial: text[text.length - 1] !== newline };
}
