import { CodedError, codeOf, messageOf } from "../lib/errors.ts";
import type { LogSource } from "../pipeline.ts";
import type { Host, HostFile, HostFs } from "../seams/host.ts";

/** The part of the target that log reading needs. */
export type LogHost = Pick<Host, "watch" | "forUsers"> & {
  readonly fs: Pick<HostFs, "realpath" | "open" | "lstat" | "list">;
};

/** Directories on the target in which log files may lie, absolute. */
export interface LogRoots {
  /** The kubelet's log directory: `POD/CONTAINER/N.log` below it, and no links. */
  readonly pods: readonly string[];
  /** The runtime's log directory, which log paths link to: files lie below the container's ID. */
  readonly runtime: (signal: AbortSignal) => Promise<readonly string[]>;
}

/** Finds the real path of a log file and makes sure that it is this container's: a link that a pod managed to put there must
 *  not show another file, nor another container's log.
 *  @throws CodedError with the kubelet's text when links cannot be followed; permission_denied when it leads elsewhere. */
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
    `failed to open log file ${JSON.stringify(logPath)}: it leads to what is not this container's log`,
  );
}

/** Opens the log file that stands at a resolved path: never through a link, never anything but a regular file.
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
