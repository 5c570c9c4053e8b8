import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import { type LogHost, openLog } from "./log-file.ts";
import { createLineSplitter } from "./line-splitter.ts";
import type { LogReading } from "./read-to-end.ts";
import { openPart, rotatedPart } from "./successor.ts";

/** Interval of attempts to open the files of a lost target, milliseconds. */
const retryMs = 1000;

/** Reopens a log after the loss of its target, to continue at the same byte: in the same file, under its new name if it was
 *  rotated meanwhile. If that file is gone, continues with the current file. @returns undefined if the log is gone. @throws
 *  the signal's reason. */
export async function reopenLog(
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
