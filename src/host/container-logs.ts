import type { FileChange, HostFs } from "../seams/host.ts";

/** Removes containers' logs with their rotated files: `0.log`, `0.log.20240501-123456`, `….gz`.
 *  @param paths absolute paths of logs on the target. */
export async function removeLogs(fs: HostFs, paths: readonly string[], signal: AbortSignal): Promise<void> {
  const directories = Map.groupBy(paths, (path) => path.slice(0, path.lastIndexOf("/")));
  const changes = await Promise.all(
    [...directories].map(async ([directory, logs]): Promise<readonly FileChange[]> => {
      const files = logs.map((path) => path.slice(directory.length + 1));
      const entries = await fs.list(directory, signal).catch(() => []);
      const own = entries.filter(({ name }) => files.some((file) => name === file || name.startsWith(`${file}.`)));
      return own.map(({ name }) => ({ kind: "remove", path: `${directory}/${name}` }));
    }),
  );
  if (changes.flat().length > 0) await fs.apply(changes.flat(), signal);
}
