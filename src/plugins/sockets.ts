import { posix } from "node:path";
import { ignoreNotFound } from "../lib/errors.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { HostFs } from "../seams/host.ts";

/** Sockets found in a directory and below it. */
export interface FoundSockets {
  /** Inode fingerprints by path, to detect a re-created socket. */
  readonly sockets: ReadonlyMap<string, string>;
  readonly directories: readonly string[];
  /** True if a limit was reached and sockets or directories were skipped. */
  readonly truncated: boolean;
}

/** Limits of one scan: anyone who may write there must not be able to keep the node busy. */
const maxSockets = 256;
const maxDirectories = 64;
const maxDepth = 8;
/** Maximum number of concurrent lstat calls. */
const maxConcurrentStats = 16;

/** Finds sockets in a directory and below it. Hidden names, symbolic links and everything beyond the limits are skipped.
 *  @throws the host's failures, not_found if the directory itself is missing. */
export async function findSockets(fs: HostFs, directory: string, signal: AbortSignal): Promise<FoundSockets> {
  const paths: string[] = [];
  const directories: string[] = [];
  let truncated = false;
  const walk = async (path: string, depth: number): Promise<void> => {
    const entries = await fs.list(path, signal);
    directories.push(path);
    for (const { name, kind } of entries) {
      if (name.startsWith(".") || !["socket", "directory"].includes(kind)) continue;
      const below = posix.join(path, name);
      if (kind === "socket" && paths.length < maxSockets) paths.push(below);
      else if (kind === "directory" && directories.length < maxDirectories && depth < maxDepth)
        await ignoreNotFound(walk(below, depth + 1));
      else truncated = true;
    }
  };
  await walk(directory, 1);
  const turns = createSemaphore(maxConcurrentStats);
  const looked = paths.map((path) =>
    turns(async () => {
      const found = await ignoreNotFound(fs.lstat(path, signal));
      return found?.kind === "socket" ? [[path, `${found.inode} ${found.modifiedAt}`] as const] : [];
    }),
  );
  return { sockets: new Map((await Promise.all(looked)).flat()), directories, truncated };
}
