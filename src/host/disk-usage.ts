import { CodedError } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";

/** A walk over many files takes its time; milliseconds. */
const longestWalkMs = 300_000;
/** Paths of one command. */
const batch = 50;

/** Bytes on disk below each path, other file systems left out; what is not there is missing. None of the paths lies in another.
 *  @throws failed_precondition when the target cannot tell. @see https://man7.org/linux/man-pages/man1/du.1.html */
export async function diskUsage(
  host: Host,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, number>> {
  const used = new Map<string, number>();
  for (let at = 0; at < paths.length; at += batch) {
    const some = paths.slice(at, at + batch);
    const options = { timeoutMs: longestWalkMs, signal };
    // It ends with 1 when a file vanished under its hands, too.
    const { code, stdout, stderr } = await host.run(["du", "-skx", ...some], options);
    const lines = stdout.split("\n").flatMap((line) => {
      const [, kibibytes, path] = /^(\d+)\t(.*)$/.exec(line) ?? [];
      return kibibytes !== undefined && path !== undefined ? [[path, Number(kibibytes) * 1024] as const] : [];
    });
    for (const [path, bytes] of lines) used.set(path, bytes);
    if (code > 1) throw new CodedError("failed_precondition", `du failed: ${stderr.trim() || `exit code ${code}`}`);
  }
  return used;
}
