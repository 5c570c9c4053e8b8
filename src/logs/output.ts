import { once } from "node:events";
import type { Writable } from "node:stream";
import { CodedError } from "../lib/errors.ts";
import type { LogOptions } from "../pipeline.ts";
import { type LineParser, type ParsedLine, parserFor, timeMs } from "./line.ts";

const newline = 0x0a;

/** Converts lines of a log file to the requested output, up to the requested limits. */
export interface LogOutput {
  /** Adds one line of the file, including its newline if present. @returns false if the output is complete. @throws CodedError
   *  unknown `unsupported log format` if the format of the first line is unknown. */
  add(line: Buffer): boolean;
  /** Adds a parsed line. @returns false if the output is complete. */
  addParsed(line: ParsedLine): boolean;
  /** Writes the buffered output, and waits for `out` to drain. */
  flush(signal: AbortSignal): Promise<void>;
}

/** @param onBadLine called for lines that do not parse, which are skipped. */
export function createLogOutput(options: LogOptions, out: Writable, onBadLine: () => void): LogOutput {
  // A client that disconnects closes it, which `flush` detects.
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
    addParsed,
    add(raw) {
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
    async flush(signal) {
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
