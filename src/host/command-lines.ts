import { finished } from "node:stream/promises";
import { BoundedBuffer } from "../lib/bounded-buffer.ts";
import { createLineReader } from "../lib/line-reader.ts";
import type { HostProcess } from "../seams/host.ts";

/** Default maximum line length of a helper process on a target, bytes. */
const defaultMaxLineBytes = 64 << 10;
/** Maximum bytes kept of a helper's standard error. */
const maxErrorBytes = 4 << 10;

/** Reads a command's output line by line until it ends or the signal aborts. @param maxLineBytes maximum line length. @returns
 *  the beginning of its standard error. @throws errors of its output or the listener; resource_exhausted for a longer line;
 *  the signal's reason. */
export async function readLines(
  { stdin, stdout, stderr, ...command }: HostProcess,
  onLine: (line: string) => void,
  signal: AbortSignal,
  maxLineBytes = defaultMaxLineBytes,
): Promise<string> {
  const take = createLineReader(maxLineBytes, onLine);
  const output = new BoundedBuffer(maxErrorBytes);
  stdout.on("data", (chunk: Buffer) => {
    if (stdout.destroyed) return;
    try {
      take(chunk);
    } catch (error) {
      stdout.destroy(error instanceof Error ? error : new Error(String(error)));
    }
  });
  stderr.on("data", (chunk: Buffer) => void output.add(chunk));
  // A failure also ends the command's output, which reports it.
  stdin.on("error", () => undefined);
  try {
    await Promise.all([finished(stdout, { signal }), finished(stderr, { signal })]);
  } finally {
    stdin.end();
    await command[Symbol.asyncDispose]();
  }
  return output.bytes().toString("utf8").trim();
}
