import type { LogLine, Runtime, RuntimeLogOptions } from "../../../src/seams/runtime.ts";
import { requestStream } from "../client/response-stream.ts";
import { engineInfo } from "../client/engine-info.ts";
import { codedDockerError } from "../client/errors.ts";
import { containerType } from "../container/names.ts";
import { inspectOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createFrames } from "../client/frames.ts";

/** Container logs over the Engine API, and the daemon's log directory, to which log paths link. */
export function dockerLogs(parts: DockerParts): Required<Pick<Runtime, "logs" | "logRoots">> {
  return {
    logs: (containerId, options, signal) => readLogs(parts, containerId, options, signal),
    async logRoots(signal) {
      const { DockerRootDir } = await engineInfo(parts, signal);
      return [`${DockerRootDir}/containers`];
    },
  };
}

async function* readLogs(
  parts: DockerParts,
  containerId: string,
  options: RuntimeLogOptions,
  signal: AbortSignal,
): AsyncGenerator<LogLine, void> {
  const { Config } = await inspectOwn(parts, containerId, containerType, signal);
  const stop = new AbortController();
  const until = AbortSignal.any([signal, stop.signal]);
  const query = {
    stdout: "1",
    stderr: "1",
    timestamps: "1",
    follow: options.follow ? "1" : "0",
    tail: options.tailLines === undefined ? "all" : String(options.tailLines),
    ...(options.since !== undefined && { since: seconds(options.since) }),
  };
  const path = `/containers/${containerId}/logs`;
  try {
    const response = await parts.docker.call(
      (engine) => requestStream(engine, { path, query, signal: until }),
      signal,
      "none",
    );
    const entries = Config.Tty ? createTerminalParser() : createFramedParser();
    const isNew = options.follow ? createRepeatFilter() : () => true;
    for await (const block of response as AsyncIterable<Buffer>)
      for (const line of entries.parse(block)) if (isNew(line)) yield line;
    for (const line of entries.flush()) if (isNew(line)) yield line;
  } catch (error) {
    throw codedDockerError(error, parts.config.socket, signal);
  } finally {
    stop.abort();
  }
}

/** Formats a time for the daemon, to the millisecond. */
function seconds(ms: number): string {
  const whole = Math.floor(ms / 1000);
  return `${whole}.${String(Math.floor(ms) - whole * 1000).padStart(3, "0")}000000`;
}

/** Number of remembered lines per stream: more than are written until the daemon notices a rotation. */
const rememberedLines = 16_384;

type Line = Pick<LogLine, "time" | "stream" | "text" | "partial">;

interface StreamPosition {
  /** Times of the latest lines, oldest first. */
  readonly recentTimes: Set<string>;
  last: string;
  /** Number of lines with the time `last`: parts of a long line share theirs. */
  atLast: number;
  /** Text of the first line with that time. */
  first: Buffer | undefined;
  /** True if the latest line was complete. */
  ended: boolean;
  /** Number of lines with that time that remain to be skipped. */
  repeated: number;
}

/** Filters repeated lines out of a followed log: Docker Engine 20.10 repeats a file's first lines after rotation. Times only grow
 *  within a stream: a line with an earlier time is a repetition if that time was seen before; otherwise the clock was set back. A
 *  repeat of the latest line is recognized by time and text; parts of a long line share their time and are distinguished by which
 *  part ended the line. */
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
  const [oldest = ""] = shown;
  shown.delete(oldest);
}

/** Parses the daemon's response to a logs request. */
export interface LogEntryParser {
  /** Returns the entries that the next block completes. */
  parse(block: Buffer): Iterable<LogLine>;
  /** Returns the last entry, which is complete only at the end of the response. */
  flush(): Iterable<LogLine>;
}

/** RFC 3339 in UTC with nine decimals, and a space. */
const timestamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z /;
const timestampLength = "2026-01-02T03:04:05.000000000Z ".length;
/** Minimum length of a partial line: the daemon splits lines there. */
const partialLineBytes = 16 * 1024;
/** Maximum length of an entry, to bound memory. No daemon writes longer entries; they would be dropped. */
const maxEntryBytes = 1024 * 1024;
const newline = 0x0a;

/** Parses the entries of a container without a terminal: one frame each. The iteration throws CodedError unknown with the
 *  daemon's message if it cannot read the log. */
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

/** Parses the entries of a container with a terminal: unframed, one line each; each part of a split line has its own
 *  timestamp. */
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
