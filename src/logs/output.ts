import { once } from "node:events";
import type { Writable } from "node:stream";
import { CodedError } from "../lib/errors.ts";
import type { LogOptions } from "../pipeline.ts";

const newline = 0x0a;

/** Converts lines of a log file to the requested output, up to the requested limits. */
export type LogOutput = ReturnType<typeof createLogOutput>;

/** @param onBadLine called for lines that do not parse, which are skipped. */
export function createLogOutput(options: LogOptions, out: Writable, onBadLine: () => void) {
  // When the client disconnects, the stream is closed, which `flush` detects.
  out.on("error", () => undefined);
  const pieces: Buffer[] = [];
  let parse: LineParser | undefined;
  let bytesLeft = options.limitBytes ?? Infinity;
  let linesLeft = options.follow ? Infinity : (options.tailLines ?? Infinity);
  let atLineStart = true;

  const put = (piece: Buffer) => {
    const kept = piece.length > bytesLeft ? piece.subarray(0, bytesLeft) : piece;
    bytesLeft -= kept.length;
    pieces.push(kept);
  };
  const show = (line: ParsedLine) => {
    if (options.since !== undefined && timeMs(line.time) < options.since) return;
    if (options.stream !== "All" && options.stream.toLowerCase() !== line.stream) return;
    if (options.timestamps && atLineStart) put(Buffer.from(`${line.time} `));
    put(line.text);
  };
  const addParsed = (line: ParsedLine): boolean => {
    if (linesLeft <= 0) return false;
    show(line);
    linesLeft--;
    atLineStart = line.text.length === 0 || line.text[line.text.length - 1] === newline;
    return bytesLeft > 0 && linesLeft > 0;
  };
  return {
    /** Adds a parsed line. @returns false if the output is complete. */
    addParsed,
    /** Adds one line of the file, including its newline if present. @returns false if the output is complete. @throws CodedError
     *  unknown `unsupported log format` if the format of the first line is unknown. */
    add(raw: Buffer): boolean {
      if (linesLeft <= 0) return false;
      parse ??= parserFor(raw);
      if (!parse)
        throw new CodedError(
          "unknown",
          `failed to get parse function: unsupported log format: ${JSON.stringify(raw.toString())}`,
        );
      const line = parse(raw);
      if (!line) {
        onBadLine();
        return true;
      }
      return addParsed(line);
    },
    /** Writes the buffered output, and waits for `out` to drain. */
    async flush(signal: AbortSignal): Promise<void> {
      if (pieces.length === 0) return;
      const chunk = Buffer.concat(pieces);
      pieces.length = 0;
      if (chunk.length > 0) await write(out, chunk, signal);
    },
  };
}

/** Writes one chunk and waits until `out` has drained. @throws CodedError cancelled if `out` is closed before; AbortError if
 *  the signal aborts. */
async function write(out: Writable, chunk: Buffer, signal: AbortSignal): Promise<void> {
  if (out.destroyed) throw new CodedError("cancelled", "the log client disconnected");
  if (out.write(chunk)) return;
  const settled = new AbortController();
  const either = { signal: AbortSignal.any([signal, settled.signal]) };
  try {
    const closed = once(out, "close", either).then(() => {
      throw new CodedError("cancelled", "the log client disconnected");
    });
    await Promise.race([once(out, "drain", either), closed]);
  } finally {
    settled.abort();
  }
}

/** One line of a container's log file. */
interface ParsedLine {
  /** RFC 3339 with nine fractional digits. */
  readonly time: string;
  readonly stream: "stdout" | "stderr";
  /** The program's output, with its newline unless the line is partial. */
  readonly text: Buffer;
}

/** Parses a line; returns undefined if it does not have the parser's format. */
type LineParser = (line: Buffer) => ParsedLine | undefined;

const space = 0x20;
const colon = 0x3a;
const partialTag = "P";

/** CRI's format: `<RFC3339Nano> <stdout|stderr> <tag[:tag…]> <text>`.
 *  @see https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md */
export const parseCriLine: LineParser = (line) => {
  const timeEnd = line.indexOf(space);
  const streamEnd = timeEnd < 0 ? -1 : line.indexOf(space, timeEnd + 1);
  const tagsEnd = streamEnd < 0 ? -1 : line.indexOf(space, streamEnd + 1);
  if (tagsEnd < 0) return undefined;
  const time = fixedTime(line.toString("latin1", 0, timeEnd));
  const stream = streamName(line.toString("latin1", timeEnd + 1, streamEnd));
  if (time === undefined || stream === undefined) return undefined;
  const firstTagEnd = line.subarray(streamEnd + 1, tagsEnd).indexOf(colon);
  const tag = line.toString("latin1", streamEnd + 1, firstTagEnd < 0 ? tagsEnd : streamEnd + 1 + firstTagEnd);
  const cut = tag === partialTag && line[line.length - 1] === newline ? line.length - 1 : line.length;
  return { time, stream, text: line.subarray(tagsEnd + 1, cut) };
};

/** Docker's json-file format: `{"log":"…\n","stream":"stdout","time":"…"}`.
 *  @see https://docs.docker.com/engine/logging/drivers/json-file/ */
export const parseDockerLine: LineParser = (line) => {
  let entry: unknown;
  try {
    entry = JSON.parse(line.toString("utf8"));
  } catch {
    return undefined;
  }
  if (typeof entry !== "object" || entry === null) return undefined;
  const field = (name: string): unknown => (entry as Record<string, unknown>)[name];
  const [log, stream, time] = [field("log") ?? "", streamName(field("stream")), fixedTime(field("time"))];
  if (typeof log !== "string" || stream === undefined || time === undefined) return undefined;
  return { time, stream, text: Buffer.from(log) };
};

/** Detects the format of a file by its first line; undefined if unknown. */
export function parserFor(firstLine: Buffer): LineParser | undefined {
  return [parseCriLine, parseDockerLine].find((parser) => parser(firstLine) !== undefined);
}

/** Converts the time of a ParsedLine to whole milliseconds since the epoch. */
function timeMs(time: string): number {
  return Date.parse(`${time.slice(0, 23)}${time.slice(29)}`);
}

const rfc3339 = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)$/;

/** Formats a time with exactly nine fractional digits, as the kubelet prints it. */
function fixedTime(time: unknown): string | undefined {
  const parts = typeof time === "string" ? rfc3339.exec(time) : null;
  if (!parts) return undefined;
  const [, seconds = "", fraction = "", zone = "Z"] = parts;
  return `${seconds}.${fraction.padEnd(9, "0")}${zone === "+00:00" ? "Z" : zone}`;
}

function streamName(name: unknown): "stdout" | "stderr" | undefined {
  return name === "stdout" || name === "stderr" ? name : undefined;
}
