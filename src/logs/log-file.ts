import { CodedError, codeOf, messageOf } from "../lib/errors.ts";
import type { LogSource } from "../pipeline.ts";
import type { Host, HostFile, HostFs } from "../seams/host.ts";

/** The part of the target that log reading needs. */
export type LogHost = Pick<Host, "watch" | "forUsers"> & {
  readonly fs: Pick<HostFs, "realpath" | "open" | "lstat" | "list">;
};

/** Directories of log files on the target, absolute. */
export interface LogRoots {
  /** The kubelet's log directory: contains `POD/CONTAINER/N.log`, not symlinks. */
  readonly pods: readonly string[];
  /** The runtime's log directory, to which log paths link: files are in a directory named by the container's ID. */
  readonly runtime: (signal: AbortSignal) => Promise<readonly string[]>;
}

/** Resolves a log file's path and verifies that it is this container's log: a symlink placed there by a pod must not expose
 *  another file or another container's log. @throws CodedError with the kubelet's text if symlinks cannot be resolved;
 *  permission_denied if it leads elsewhere. */
export async function resolveLog(
  host: LogHost,
  roots: LogRoots,
  { logPath, containerId }: LogSource,
  signal: AbortSignal,
): Promise<string> {
  const real = await host.fs.realpath(logPath, signal).catch((error: unknown) => {
    throw new CodedError(
      codeOf(error),
      `failed to try resolving symlinks in path ${JSON.stringify(logPath)}: ${messageOf(error)}`,
      { cause: error },
    );
  });
  const realRoots = async (paths: readonly string[]) =>
    (await Promise.all(paths.map((path) => host.fs.realpath(path, signal).catch(() => undefined)))).filter(
      (path) => path !== undefined,
    );
  const own = logPath.split("/").slice(-3).join("/");
  if ((await realRoots(roots.pods)).some((root) => real === `${root}/${own}`)) return real;
  const ofRuntime = await realRoots(await roots.runtime(signal));
  if (ofRuntime.some((root) => real.startsWith(`${root}/${containerId}/`))) return real;
  throw new CodedError(
    "permission_denied",
    `failed to open log file ${JSON.stringify(logPath)}: it does not resolve to this container's log`,
  );
}

/** Opens the log file at a resolved path: never through a symlink, and only a regular file.
 *  @throws CodedError with the kubelet's text. */
export async function openLog(host: LogHost, path: string, signal: AbortSignal): Promise<HostFile> {
  try {
    return await host.fs.open(path, { noFollow: true, signal });
  } catch (error) {
    throw new CodedError(codeOf(error), `failed to open log file ${JSON.stringify(path)}: ${messageOf(error)}`, {
      cause: error,
    });
  }
}
