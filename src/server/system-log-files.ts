import { CodedError, ignoreCode } from "../lib/errors.ts";
import type { HostFile, HostFs } from "../seams/host.ts";
import type { KubeletServerDeps } from "./ports.ts";

/** Directory of the target's logs. */
export const root = "/var/log";
const blockBytes = 64 * 2 ** 10;

/** True if a file is inside a log directory. A user who may only create links there must not be able to read other files. */
export async function isLog(
  { runtime, podLogsDir, files }: Pick<KubeletServerDeps, "runtime" | "podLogsDir" | "files">,
  path: string,
  signal: AbortSignal,
): Promise<boolean> {
  const named = [root, podLogsDir, ...((await runtime.logRoots?.(signal)) ?? [])];
  // A root may be a link itself, for example to a larger disk.
  const roots = await Promise.all(named.map((one) => realPathOf(files, one, signal)));
  return roots.some((one) => path === one || path.startsWith(`${one}/`));
}

/** Resolves symlinks; returns the path itself if nothing readable exists there. */
async function realPathOf(files: Pick<HostFs, "realpath">, path: string, signal: AbortSignal): Promise<string> {
  return (await ignoreCode(files.realpath(path, signal), "not_found", "permission_denied")) ?? path;
}

/** Reads up to the size at opening time: a growing file would have no end, and a truncated one must not look complete. */
export async function* readBlocks(
  file: HostFile,
  start: number,
  end: number,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  for (let at = start; at < end; ) {
    const block = await file.read(at, Math.min(blockBytes, end - at), signal);
    if (block.length === 0) throw new CodedError("conflict", "the file was truncated while it was read");
    at += block.length;
    yield block;
  }
}
