import { posix } from "node:path";
import type { Writable } from "node:stream";
import { hasCode } from "../lib/errors.ts";
import type { LogOptions, LogReader, LogSource } from "../pipeline.ts";
import type { HostFile } from "../seams/host.ts";
import { type LogReaderDeps, followLog } from "./follow.ts";
import { type LogRoots, openLog, resolveLog } from "./log-file.ts";
import { createLineSplitter } from "./line-splitter.ts";
import { createLogOutput, type LogOutput } from "./output.ts";
import { blockBuffer, readToEnd } from "./read-to-end.ts";
import type { LogLine } from "../seams/runtime.ts";

interface LogFile {
  /** Real path. */
  readonly path: string;
  readonly file: HostFile;
}

/** Reads container logs from the files that runtimes write on the target, in CRI's or Docker's format: the current file only,
 *  with at most one block in memory. If the file is missing or unreadable, reads the lines from the runtime, if it supports
 *  that. `read` throws a CodedError whose message is the kubelet's text.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/logging/ */
export function createLogReader(deps: LogReaderDeps): LogReader {
  const { host, log, runtime } = deps;
  const roots = rootsOf(deps);
  const open = async (container: LogSource, signal: AbortSignal): Promise<LogFile> => {
    const path = await resolveLog(host, roots, container, signal);
    return { path, file: await openLog(host, path, signal) };
  };
  return {
    async read(container: LogSource, options: LogOptions, out: Writable, signal: AbortSignal) {
      const bad = (what: string) => () => log.debug({ ...container }, what);
      const output = createLogOutput(options, out, bad("skipping malformed log line"));
      const opened = await open(container, signal).catch(async (error: unknown) => {
        if (!runtime.logs || !hasCode(error, "permission_denied", "not_found")) throw error;
        const lines = runtime.logs(container.containerId, options, signal);
        if (!(await copyFromRuntime(lines, output, signal))) throw error;
      });
      if (!opened) return;
      await using file = opened.file;
      const { path } = opened;
      const { size, inode } = await file.stat(signal);
      const reading = {
        file,
        inode,
        buffer: blockBuffer(),
        position: options.tailLines === undefined ? 0 : await tailStart(file, size, options.tailLines, signal),
        splitter: createLineSplitter(bad("skipping overlong log line")),
        output,
      };
      if (options.follow) {
        const followed = { path, directory: posix.dirname(path), containerId: container.containerId };
        await followLog(deps, followed, reading, signal);
        return;
      }
      if (!(await readToEnd(reading, signal))) return;
      const rest = reading.splitter.rest();
      if (rest.length > 0) output.add(rest);
      await output.flush(signal);
    },
  };
}

/** The runtime's log directories are queried once, only if a log is outside the pod log directory. */
function rootsOf({ roots, runtime }: LogReaderDeps): LogRoots {
  let known: readonly string[] | undefined;
  return { pods: roots, runtime: async (signal) => (known ??= (await runtime.logRoots?.(signal)) ?? []) };
}

/** Copies a log from the runtime, until its end or until the output is complete. @returns false if the runtime has no such
 *  container or does not support logs. @throws other errors of the runtime. */
async function copyFromRuntime(
  lines: AsyncIterable<LogLine>,
  output: LogOutput,
  signal: AbortSignal,
): Promise<boolean> {
  try {
    for await (const line of lines) {
      const more = output.addParsed(line);
      await output.flush(signal);
      if (!more) return true;
    }
    return true;
  } catch (error) {
    if (hasCode(error, "not_found", "unimplemented")) return false;
    throw error;
  }
}

const blockBytes = 64 * 1024;
const newline = 0x0a;

/** Offset of the last `lines` lines of a file, in bytes, found by reading backwards block by block. A last line without a
 *  newline is not counted, as in the kubelet, and is returned in addition. @param size number of bytes of the file to search. */
async function tailStart(file: HostFile, size: number, lines: number, signal: AbortSignal): Promise<number> {
  let wanted = lines;
  for (let right = size; right > 0; ) {
    const left = Math.max(0, right - blockBytes);
    const block = await file.read(left, right - left, signal);
    for (let at = block.lastIndexOf(newline); at >= 0; at = at === 0 ? -1 : block.lastIndexOf(newline, at - 1)) {
      if (wanted === 0) return left + at + 1;
      wanted--;
    }
    right = left;
  }
  return 0;
}
