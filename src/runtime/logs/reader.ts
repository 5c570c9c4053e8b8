import { posix } from "node:path";
import type { Writable } from "node:stream";
import type { Clock } from "../../lib/clock.ts";
import type { Logger } from "../../lib/log.ts";
import type { LogOptions, LogReader, LogSource } from "../../pipeline.ts";
import { type LogHost, openLog, resolveLog } from "./file.ts";
import { followLog } from "./follow.ts";
import { createLineCutter } from "./lines.ts";
import { createLogOutput } from "./output.ts";
import { readToEnd } from "./read-to-end.ts";
import { tailStart } from "./tail.ts";

export interface LogReaderDeps {
  readonly host: LogHost;
  readonly clock: Clock;
  readonly log: Logger;
  /** Directories on the target in which log files may lie (KubeletConfiguration.podLogsDir). */
  readonly roots: readonly string[];
  /** Whether a container still runs. not_found counts as no; unavailable as yes, for containers outlive their runtime. */
  readonly isRunning: (containerId: string, signal: AbortSignal) => Promise<boolean>;
}

/** Reads container logs from the files that runtimes write on the target: CRI's format or Docker's, the current file only,
 *  in blocks, never more than one block in memory. `read` throws a CodedError whose message is the kubelet's text.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/ */
export function createLogReader(deps: LogReaderDeps): LogReader {
  const { host, log } = deps;
  return {
    async read(container: LogSource, options: LogOptions, out: Writable, signal: AbortSignal) {
      const path = await resolveLog(host, deps.roots, container.logPath, signal);
      await using file = await openLog(host, path, signal);
      const { size } = await file.stat(signal);
      const bad = (what: string) => () => log.debug({ path, containerId: container.containerId }, what);
      const reading = {
        file,
        position: options.tailLines === undefined ? 0 : await tailStart(file, size, options.tailLines, signal),
        cutter: createLineCutter(bad("log line too long, left out")),
        output: createLogOutput(options, out, bad("log line does not parse, left out")),
      };
      if (options.follow) {
        await followLog(
          deps,
          { path, directory: posix.dirname(path), containerId: container.containerId },
          reading,
          signal,
        );
        return;
      }
      if (!(await readToEnd(reading, signal))) return;
      const rest = reading.cutter.rest();
      if (rest.length > 0) reading.output.add(rest);
      await reading.output.flush(signal);
    },
  };
}
