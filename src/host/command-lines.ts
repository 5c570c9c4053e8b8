import { finished } from "node:stream/promises";
import type { HostProcess } from "../seams/host.ts";

/** Hands on the lines of a command's output until it ends, or the signal aborts. @returns what it said on standard error.
 *  @throws what its output fails with, or the signal's reason. */
export async function readLines(
  { stdin, stdout, stderr, ...command }: HostProcess,
  heard: (line: string) => void,
  signal: AbortSignal,
): Promise<string> {
  let rest = "";
  let said = "";
  stdout.setEncoding("utf8").on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    lines.forEach(heard);
  });
  stderr.setEncoding("utf8").on("data", (text: string) => (said += text));
  try {
    await Promise.all([finished(stdout, { signal }), finished(stderr, { signal })]);
  } finally {
    stdin.end();
    await command[Symbol.asyncDispose]();
  }
  return said.trim();
}
