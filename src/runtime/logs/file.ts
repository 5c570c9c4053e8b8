import { CodedError, codeOf, messageOf } from "../../lib/errors.ts";
import type { Host, HostFile, HostFs } from "../../seams/host.ts";

/** What reading logs asks of the target. */
export type LogHost = Pick<Host, "watch"> & { readonly fs: Pick<HostFs, "realpath" | "open" | "lstat" | "list"> };

/** Finds the real path of a log file and makes sure that it lies in one of the directories where logs may lie: a link that
 *  a pod managed to put there must not lead a reader out.
 *  @param roots absolute directories on the target, asked for one after the other.
 *  @throws CodedError with the kubelet's text when links cannot be followed; permission_denied when it leads elsewhere. */
export async function resolveLog(
  host: LogHost,
  roots: AsyncIterable<string>,
  path: string,
  signal: AbortSignal,
): Promise<string> {
  const real = await host.fs.realpath(path, signal).catch((error: unknown) => {
    throw new CodedError(
      codeOf(error),
      `failed to try resolving symlinks in path ${JSON.stringify(path)}: ${messageOf(error)}`,
      { cause: error },
    );
  });
  for await (const root of roots) {
    const realRoot = await host.fs.realpath(root, signal).catch(() => undefined);
    if (realRoot !== undefined && real.startsWith(realRoot.endsWith("/") ? realRoot : `${realRoot}/`)) return real;
  }
  throw new CodedError(
    "permission_denied",
    `failed to open log file ${JSON.stringify(path)}: it leads outside of the log directories`,
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
