import { hasCode, ignoreNotFound, messageOf } from "../lib/errors.ts";
import { createLineSplitter } from "./line-splitter.ts";
import { type LogReading, readToEnd } from "./read-to-end.ts";
import { openPart, successor, rotatedPart } from "./successor.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger, ClockAndLog } from "../lib/log.ts";
import { type LogHost, openLog } from "./log-file.ts";
import type { Runtime } from "../seams/runtime.ts";

/** Interval of checks that the container still runs, milliseconds, as in the kubelet. */
const livenessMs = 1000;
/** Time without a change after which a rotated log is complete once its successor has lines, milliseconds: the runtime still
 *  writes to the old file what it had read before it opened the new one. */
const quietMs = 250;

/** Attempts to open a file that is moved meanwhile: it is renamed once and compressed once. */
const maxOpenAttempts = 3;

export interface FollowedLog {
  /** Real path of the log file. */
  readonly path: string;
  readonly directory: string;
  readonly containerId: string;
}

/** Follows a log, also across rotation and the loss of its target, until its container is gone and the file is read to its
 *  end, the output is complete, or the signal aborts (then it throws). Closes the files it opens, but not the first. */
export async function followLog(
  deps: LogReaderDeps,
  log: FollowedLog,
  first: LogReading,
  signal: AbortSignal,
): Promise<void> {
  await using changes = watchChanges(deps, log.directory, signal);
  const liveness = createLiveness(deps, log.containerId);
  let reading = first;
  const switchTo = async (next: LogReading) => {
    if (reading.file !== first.file && reading.file !== next.file) await reading.file.close();
    reading = next;
  };
  const readUntilEnd = async () => {
    for (let running = true; running; ) {
      if (!(await readToEnd(reading, signal))) return;
      running = await liveness(signal);
      if (running) await changes.next();
      for (;;) {
        const next = await nextReading(deps, log, { reading, running }, signal);
        if (!next) break;
        const more = await readToEnd(reading, signal);
        await switchTo(next);
        if (!more || !(await readToEnd(reading, signal))) return;
      }
    }
    await readToEnd(reading, signal);
  };
  try {
    for (;;) {
      try {
        return await readUntilEnd();
      } catch (error) {
        if (!hasCode(error, "unavailable")) throw error;
      }
      const next = await reopenLog(deps, log.path, reading, signal);
      if (!next) return;
      await switchTo(next);
    }
  } finally {
    if (reading.file !== first.file) await reading.file.close();
  }
}

/** The reading to continue with after rotation: the new file, or the old one while it is not complete; or the start of a
 *  truncated file. Undefined if none of that has happened. */
async function nextReading(
  deps: LogReaderDeps,
  log: FollowedLog,
  { reading, running }: { readonly reading: LogReading; readonly running: boolean },
  signal: AbortSignal,
): Promise<LogReading | undefined> {
  const { host } = deps;
  const fresh = (part: Pick<LogReading, "file" | "inode" | "rotatedAt">): LogReading => ({
    buffer: reading.buffer,
    output: reading.output,
    ...part,
    position: 0,
    splitter: createLineSplitter(() => {}),
  });
  const [there, mine] = [await ignoreNotFound(host.fs.lstat(log.path, signal)), await reading.file.stat(signal)];
  if (there === undefined) return undefined;
  if (there.inode === mine.inode) return mine.size < reading.position ? fresh(reading) : undefined;
  const which = { ...mine, ...(reading.rotatedAt !== undefined && { rotatedAt: reading.rotatedAt }) };
  for (let attempt = 0; attempt < maxOpenAttempts; attempt += 1) {
    const next = await successor(host, log.path, { mine: which, current: there }, signal);
    if (next.path === log.path && running) {
      if (there.size === 0) return undefined;
      await deps.clock.sleep(quietMs, signal);
      if ((await reading.file.stat(signal)).size > reading.position) return reading;
    }
    const file = await openPart(host, next, signal);
    const { inode, rotatedAt } = next;
    if (file) return fresh({ file, inode, ...(rotatedAt !== undefined && { rotatedAt }) });
    // Rotation or compression has just moved it.
  }
  return undefined;
}

/** Queries the runtime at most once a second. */
function createLiveness(
  { clock, isRunning }: LogReaderDeps,
  containerId: string,
): (signal: AbortSignal) => Promise<boolean> {
  let askedAt = -Infinity;
  return async (signal) => {
    if (clock.monotonic() - askedAt < livenessMs) return true;
    askedAt = clock.monotonic();
    try {
      return await isRunning(containerId, signal);
    } catch (error) {
      if (hasCode(error, "not_found")) return false;
      if (hasCode(error, "unavailable", "deadline_exceeded")) return true;
      throw error;
    }
  };
}

/** Polling interval of a directory without events, milliseconds, as in the kubelet. */
const pollMs = 1000;

/** Waits for changes in a directory. */
interface Changes extends AsyncDisposable {
  /** Resolves when something may have changed since the last call, or after a second. @throws the signal's reason if it
   *  aborts. */
  next(): Promise<void>;
}

/** Watches a directory of the target if the host supports watches, and polls every second in addition. */
function watchChanges(
  deps: { host: LogHost; clock: Clock; log: Logger },
  directory: string,
  signal: AbortSignal,
): Changes {
  const { clock, log } = deps;
  const host = deps.host.forUsers ?? deps.host;
  const stop = new AbortController();
  const until = AbortSignal.any([signal, stop.signal]);
  let changed = false;
  let wake = () => {};
  const watching = (async () => {
    if (!host.watch) return;
    for await (const _path of host.watch(directory, until)) {
      changed = true;
      wake();
    }
  })().catch((error: unknown) => {
    if (!until.aborted)
      log.debug({ directory, why: messageOf(error) }, "cannot watch log directory; polling every second");
  });
  return {
    async next() {
      if (!changed) {
        const awake = new AbortController();
        wake = () => awake.abort();
        await clock.sleep(pollMs, AbortSignal.any([until, awake.signal])).catch(() => {});
      }
      until.throwIfAborted();
      changed = false;
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await watching;
    },
  };
}

/** Interval of attempts to open the files of a lost target, milliseconds. */
const retryMs = 1000;

/** Reopens a log after the loss of its target, to continue at the same byte: in the same file, under its new name if it was
 *  rotated meanwhile. If that file is gone, continues with the current file. @returns undefined if the log is gone. @throws
 *  the signal's reason. */
async function reopenLog(
  deps: { readonly host: LogHost; readonly clock: Clock },
  path: string,
  reading: LogReading,
  signal: AbortSignal,
): Promise<LogReading | undefined> {
  for (;;) {
    await deps.clock.sleep(retryMs, signal);
    try {
      return await resume(deps.host, path, reading, signal);
    } catch (error) {
      if (hasCode(error, "not_found")) return undefined;
      if (!hasCode(error, "unavailable")) throw error;
    }
  }
}

async function resume(
  host: LogHost,
  path: string,
  reading: LogReading,
  signal: AbortSignal,
): Promise<LogReading | undefined> {
  const isRotated = reading.rotatedAt !== undefined;
  const again = isRotated ? await openRotated(host, path, reading, signal) : undefined;
  if (again) return again;
  const file = await openLog(host, path, signal);
  try {
    const { inode, size } = await file.stat(signal);
    if (inode === reading.inode && size >= reading.position) return { ...reading, file };
    const same = isRotated || inode === reading.inode ? undefined : await openRotated(host, path, reading, signal);
    if (same) await file.close();
    const { buffer, output } = reading;
    return same ?? { buffer, output, file, inode, position: 0, splitter: createLineSplitter(() => {}) };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Opens the file under its rotated name: `0.log.20240501-123456`, Docker's `…-json.log.1`. @returns undefined if it is gone. */
async function openRotated(
  host: LogHost,
  path: string,
  reading: LogReading,
  signal: AbortSignal,
): Promise<LogReading | undefined> {
  const part = await rotatedPart(host, path, reading, signal);
  const file = part && (await openPart(host, part, signal));
  return file && { ...reading, file, inode: part.inode };
}

export interface LogReaderDeps extends ClockAndLog {
  readonly host: LogHost;
  /** Directories of log files on the target (KubeletConfiguration.podLogsDir). */
  readonly roots: readonly string[];
  /** Names the runtime's own log directories, and returns the lines of a log whose file is not accessible. */
  readonly runtime: Pick<Runtime, "logRoots" | "logs">;
  /** True while the container runs. not_found counts as false; unavailable as true, since containers outlive their runtime. */
  readonly isRunning: (containerId: string, signal: AbortSignal) => Promise<boolean>;
}
