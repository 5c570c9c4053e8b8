import { hasCode, unlessGone } from "../lib/errors.ts";
import { watchChanges } from "./changes.ts";
import { openLog } from "./file.ts";
import { createLineCutter } from "./lines.ts";
import { type Reading, readToEnd } from "./read-to-end.ts";
import type { LogReaderDeps } from "./deps.ts";
import { reopenLog } from "./reopen.ts";

/** Interval of the check that the container still runs, milliseconds, as in the kubelet. */
const livenessMs = 1000;

export interface Followed {
  /** Real path of the log file. */
  readonly path: string;
  readonly directory: string;
  readonly containerId: string;
}

/** Reads a log as it grows, also across rotation and the loss of its target, until its container is gone and the file is read to
 *  its end, the output wants no more, or the signal aborts (then it throws). Closes the files that it opens, not the first. */
export async function followLog(
  deps: LogReaderDeps,
  log: Followed,
  first: Reading,
  signal: AbortSignal,
): Promise<void> {
  await using changes = watchChanges(deps, log.directory, signal);
  const liveness = createLiveness(deps, log.containerId);
  let reading = first;
  const goOnWith = async (next: Reading) => {
    if (reading.file !== first.file && reading.file !== next.file) await reading.file.close();
    reading = next;
  };
  const readOn = async () => {
    for (let running = true; running; ) {
      if (!(await readToEnd(reading, signal))) return;
      running = await liveness(signal);
      if (running) await changes.next();
      const next = await rotated(deps, log, reading, signal);
      if (!next) continue;
      // The runtime has reopened its log, so nothing more is added to the old file.
      const more = await readToEnd(reading, signal);
      await goOnWith(next);
      if (!more) return;
    }
    await readToEnd(reading, signal);
  };
  try {
    for (;;) {
      try {
        return await readOn();
      } catch (error) {
        if (!hasCode(error, "unavailable")) throw error;
      }
      const next = await reopenLog(deps, log.path, reading, signal);
      if (!next) return;
      await goOnWith(next);
    }
  } finally {
    if (reading.file !== first.file) await reading.file.close();
  }
}

/** The reading to go on with when another file has taken the name, or the file was cut short; undefined when neither. */
async function rotated(
  deps: LogReaderDeps,
  log: Followed,
  reading: Reading,
  signal: AbortSignal,
): Promise<Reading | undefined> {
  const { host } = deps;
  const fresh = (file: Reading["file"], inode: number): Reading => ({
    ...reading,
    file,
    inode,
    position: 0,
    cutter: createLineCutter(() => {}),
  });
  const [there, mine] = [await unlessGone(host.fs.lstat(log.path, signal)), await reading.file.stat(signal)];
  if (there === undefined) return undefined;
  if (there.inode === mine.inode) return mine.size < reading.position ? fresh(reading.file, mine.inode) : undefined;
  const reopened = async () => {
    const file = await openLog(host, log.path, signal);
    return fresh(file, (await file.stat(signal)).inode);
  };
  return unlessGone(reopened());
}

/** Asks the runtime at most once a second. */
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
