import type { HostFile } from "../seams/host.ts";
import type { LineCutter } from "./lines.ts";
import type { LogOutput } from "./output.ts";

const blockBytes = 64 * 1024;

/** Memory for one block of a log file, used again for each. */
export function blockMemory(): Buffer {
  return Buffer.allocUnsafeSlow(blockBytes);
}

/** A log file while it is read. */
export interface Reading {
  readonly file: HostFile;
  /** Inode of the file. */
  readonly inode: number;
  /** Time of its rotation as in its name, where it was opened by that name. */
  readonly rotatedAt?: string;
  readonly memory: Buffer;
  /** Bytes read so far. */
  position: number;
  readonly cutter: LineCutter;
  readonly output: LogOutput;
}

/** Reads on to where the file ends now, writing its complete lines.
 *  @returns false when the output wants no more. */
export async function readToEnd(reading: Reading, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    signal.throwIfAborted();
    const block = await reading.file.read(reading.position, blockBytes, signal, reading.memory);
    if (block.length === 0) return true;
    reading.position += block.length;
    const more = reading.cutter.feed(block, (line) => reading.output.add(line));
    await reading.output.flush(signal);
    if (!more) return false;
  }
}
