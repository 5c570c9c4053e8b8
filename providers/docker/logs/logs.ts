import type { LogLine, Runtime, RuntimeLogOptions } from "../../../src/seams/runtime.ts";
import { requestStream } from "../client/response-stream.ts";
import { codedDockerError } from "../client/errors.ts";
import { createFramedParser, createTerminalParser } from "./entries.ts";
import { createRepeatFilter } from "./repeat-filter.ts";
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
