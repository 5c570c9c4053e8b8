import { posix } from "node:path";
import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import type { HostFile } from "../seams/host.ts";
import { type LogHost, openLog } from "./file.ts";
import { createLineCutter } from "./lines.ts";
import { type Reading, readToEnd } from "./read-to-end.ts";

/** Interval of tries to open the files of a lost target, milliseconds. */
const retryMs = 1000;

/** Opens a log anew whose target was lost, once that is back, and goes on at the byte where it stopped; what is left of a file
 *  that was rotated away meanwhile is read first, where it still lies beside.
 *  @returns undefined when the log is gone, or the output wants no more.
 *  @throws what the signal aborted with. */
export async function reopenLog(
  deps: { readonly host: LogHost; readonly clock: Clock },
  path: string,
  reading: Reading,
  signal: AbortSignal,
): Promise<Reading | undefined> {
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
  reading: Reading,
  signal: AbortSignal,
): Promise<Reading | undefined> {
  const file = await openLog(host, path, signal);
  try {
    const { inode, size } = await file.stat(signal);
    if (inode === reading.inode && size >= reading.position) return { ...reading, file };
    if (inode !== reading.inode && !(await readRotated(host, path, reading, signal))) {
      await file.close();
      return undefined;
    }
    return { ...reading, file, inode, position: 0, cutter: createLineCutter(() => {}) };
  } catch (error) {
    await file.close();
    throw error;
  }
}

/** Reads the rest of the file under the name that it has now: `0.log.20240501-123456`, Docker's `…-json.log.1`.
 *  @returns false when the output wants no more. */
async function readRotated(host: LogHost, path: string, reading: Reading, signal: AbortSignal): Promise<boolean> {
  const directory = posix.dirname(path);
  for (const { name, kind } of await host.fs.list(directory, signal)) {
    if (kind !== "file" || !name.startsWith(`${posix.basename(path)}.`)) continue;
    await using file: HostFile = await openLog(host, `${directory}/${name}`, signal);
    if ((await file.stat(signal)).inode !== reading.inode) continue;
    const rest = { ...reading, file };
    const more = await readToEnd(rest, signal).finally(() => (reading.position = rest.position));
    return more;
  }
  return true;
}
