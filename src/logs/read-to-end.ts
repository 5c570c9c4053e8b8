import type { HostFile } from "../seams/host.ts";
import type { LineCutter } from "./lines.ts";
import type { LogOutput } from "./output.ts";

const blockBytes = 64 * 1024;

/** Buffer for one block of a log file, reused for each block. */
export function blockMemory(): Buffer {
  return Buffer.allocUnsafeSlow(blockBytes);
}

/** A log file being read. */
export interface Reading {
  readonly file: HostFile;
  /** Inode of the file. */
  readonly inode: number;
  /** Rotation time in its name, if it was opened by that name. */
  readonly rotatedAt?: string;
  readonly memory: Buffer;
  /** Bytes read so far. */
  position: number;
  readonly cutter: LineCutter;
  readonly output: LogOutput;
}

/** Reads to the current end of the file, writing complete lines. @returns false if the output is complete. */
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
