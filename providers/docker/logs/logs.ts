import type { LogLine, Runtime, RuntimeLogOptions } from "../../../src/seams/runtime.ts";
import { requestStream } from "../client/response-stream.ts";
import { codedDockerError } from "../client/errors.ts";
import { createFramedParser, createTerminalParser } from "./entries.ts";
import { containerType } from "../container/names.ts";
import { inspectOwn } from "../container/own.ts";
import type { DockerParts } from "../parts.ts";

/** Container logs over the Engine API, and the daemon's log directory, to which log paths link. */
export function dockerLogs(parts: DockerParts): Required<Pick<Runtime, "logs" | "logRoots">> {
  const { docker } = parts;
  return {
    logs: (containerId, options, signal) => readLogs(parts, containerId, options, signal),
    async logRoots(signal) {
      const { DockerRootDir } = await docker.request<{ readonly DockerRootDir: string }>({ path: "/info" }, signal);
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

/** Remembered lines per stream: more than are written until the daemon notices a rotation. */
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
  /** Number of lines with that time that are still to be skipped. */
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
