import { finished } from "node:stream/promises";
import { KeptBytes } from "../lib/kept-bytes.ts";
import { createLineReader } from "../lib/line-reader.ts";
import type { HostProcess } from "../seams/host.ts";

/** Longest line of a helper on a target, bytes, unless its reader says otherwise. */
const usualLineBytes = 64 << 10;
/** Kept of a helper's standard error, bytes; the rest is dropped. */
const maxErrorBytes = 4 << 10;

/** Hands on the lines of a command's output until it ends, or the signal aborts.
 *  @param maxLineBytes limit of a line.
 *  @returns the beginning of what it said on standard error.
 *  @throws what its output or the listener fails with; resource_exhausted for a longer line; the signal's reason. */
export async function readLines(
  { stdin, stdout, stderr, ...command }: HostProcess,
  heard: (line: string) => void,
  signal: AbortSignal,
  maxLineBytes = usualLineBytes,
): Promise<string> {
  const take = createLineReader(maxLineBytes, heard);
  const said = new KeptBytes(maxErrorBytes);
  stdout.on("data", (chunk: Buffer) => {
    if (stdout.destroyed) return;
    try {
      take(chunk);
    } catch (error) {
      stdout.destroy(error instanceof Error ? error : new Error(String(error)));
    }
  });
  stderr.on("data", (chunk: Buffer) => void said.add(chunk));
  // It shows in the end of its output.
  stdin.on("error", () => undefined);
  try {
    await Promise.all([finished(stdout, { signal }), finished(stderr, { signal })]);
  } finally {
    stdin.end();
    await command[Symbol.asyncDispose]();
  }
  return said.bytes().toString("utf8").trim();
}
