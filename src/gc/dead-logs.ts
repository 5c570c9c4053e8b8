import { hasCode, messageOf, ignoreNotFound } from "../lib/errors.ts";
import type { FileChange, HostFs } from "../seams/host.ts";

/** Changes that remove the log directories of pods for which `isFinished` holds.
 *  @param directory KubeletConfiguration.podLogsDir, which may not exist. @throws in the kubelet's words if it cannot be read. */
export async function podLogsToRemove(
  fs: Pick<HostFs, "list">,
  directory: string,
  isFinished: (uid: string) => boolean,
  signal: AbortSignal,
): Promise<readonly FileChange[]> {
  const entries = await ignoreNotFound(fs.list(directory, signal)).catch((error: unknown) => {
    throw new Error(`failed to read podLogsDirectory ${JSON.stringify(directory)}: ${messageOf(error)}`, {
      cause: error,
    });
  });
  const finished = (entries ?? []).filter(({ name }) => isFinished(/^[^_]+_[^_]+_([^_]+)$/.exec(name)?.[1] ?? ""));
  return finished.map(({ name }) => ({ kind: "remove", path: `${directory}/${name}`, recursive: true }));
}

/** Removes dangling links for log collectors, except those of containers in `living` (the end of the link's name is the container ID): a
 *  running container's log is missing for a moment during rotation. */
export async function removeDanglingLinks(
  fs: HostFs,
  directory: string,
  living: ReadonlySet<string>,
  signal: AbortSignal,
): Promise<void> {
  for (const { name, kind } of await fs.list(directory, signal).catch(() => [])) {
    const path = `${directory}/${name}`;
    if (kind !== "symlink" || living.has(/-([^-]+)\.log$/.exec(name)?.[1] ?? "")) continue;
    const dangling = await fs.stat(path, signal).then(
      () => false,
      (error: unknown) => hasCode(error, "not_found"),
    );
    if (dangling) await fs.apply([{ kind: "remove", path }], signal);
  }
}
