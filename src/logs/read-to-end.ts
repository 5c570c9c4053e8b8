import type { HostFile } from "../seams/host.ts";
import type { LineSplitter } from "./line-splitter.ts";
import type { LogOutput } from "./output.ts";

const blockBytes = 64 * 1024;

/** Buffer for one block of a log file, reused for each block. */
export function blockBuffer(): Buffer {
  return Buffer.allocUnsafeSlow(blockBytes);
}

/** A log file being read. */
export interface LogReading {
  readonly file: HostFile;
  readonly inode: number;
  /** Rotation time in the file's name; absent if it was opened under a name without a time. */
  readonly rotatedAt?: string;
  readonly buffer: Buffer;
  /** Bytes read so far. */
  position: number;
  readonly splitter: LineSplitter;
  readonly output: LogOutput;
}

/** Reads to the current end of the file, writing complete lines. @returns false if the output is complete. */
export async function readToEnd(reading: LogReading, signal: AbortSignal): Promise<boolean> {
  for (;;) {
    signal.throwIfAborted();
    const block = await reading.file.read(reading.position, blockBytes, signal, reading.buffer);
    if (block.length === 0) return true;
    reading.position += block.length;
    const more = reading.splitter.feed(block, (line) => reading.output.add(line));
    await reading.output.flush(signal);
    if (!more) return false;
  }
}
