import { posix } from "node:path";
import { hasCode, unlessGone } from "../lib/errors.ts";
import { watchChanges } from "./changes.ts";
import { openLog } from "./file.ts";
import { createLineCutter } from "./lines.ts";
import { type Reading, readToEnd } from "./read-to-end.ts";
import type { FileInfo } from "../seams/host.ts";
import type { LogReaderDeps } from "./deps.ts";
import { reopenLog } from "./reopen.ts";
import { rotatedNames } from "./rotated-files.ts";

/** Interval of the check that the container still runs, milliseconds, as in the kubelet. */
const livenessMs = 1000;
/** Time without a change after which a log that was rotated away is complete once its successor has lines, milliseconds: what the
 *  runtime had taken before it began the new one it still writes into the old one. */
const settledMs = 250;

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
      for (;;) {
        const next = await rotated(deps, log, { reading, running }, signal);
        if (!next) break;
        const more = await readToEnd(reading, signal);
        await goOnWith(next);
        if (!more || !(await readToEnd(reading, signal))) return;
      }
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

/** The reading to go on with when another file has taken the name: that file, or this one while it is not complete; or from the
 *  start of a file that was cut short. Undefined when there is nothing of that. */
async function rotated(
  deps: LogReaderDeps,
  log: Followed,
  { reading, running }: { readonly reading: Reading; readonly running: boolean },
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
  const next = await successor(deps, log, { mine, current: there }, signal);
  if (next.path === log.path && running) {
    if (there.size === 0) return undefined;
    await deps.clock.sleep(settledMs, signal);
    if ((await reading.file.stat(signal)).size > reading.position) return reading;
  }
  // Rotation may have put another one there: the next look finds it under its new name.
  const file = await unlessGone(openLog(host, next.path, signal));
  if (!file) return undefined;
  const { inode } = await file.stat(signal);
  if (inode === next.inode) return fresh(file, inode);
  await file.close();
  return undefined;
}

/** The file that was begun after this one: a slow reader may be several rotations behind. Of one that has been compressed or
 *  removed meanwhile only its age tells. */
async function successor(
  { host }: LogReaderDeps,
  { path, directory }: Followed,
  { mine, current }: { readonly mine: FileInfo; readonly current: FileInfo },
  signal: AbortSignal,
): Promise<{ readonly path: string; readonly inode: number }> {
  const names = (await host.fs.list(directory, signal)).map(({ name }) => name);
  const seconds = ({ modifiedAt }: FileInfo) => Math.floor(modifiedAt / 1000);
  let next = { path, inode: current.inode };
  let oldestYounger = next;
  for (const name of rotatedNames(names, posix.basename(path))) {
    const older = `${directory}/${name}`;
    const found = await unlessGone(host.fs.lstat(older, signal));
    if (!found) continue;
    if (found.inode === mine.inode) return next;
    next = { path: older, inode: found.inode };
    if (seconds(found) > seconds(mine)) oldestYounger = next;
  }
  return oldestYounger;
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
