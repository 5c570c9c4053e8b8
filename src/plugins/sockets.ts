import { posix } from "node:path";
import { unlessGone } from "../lib/errors.ts";
import { createTurns } from "../lib/turns.ts";
import type { HostFs } from "../seams/host.ts";

/** Sockets in a directory and below it, as they were found. */
export interface FoundSockets {
  /** Marks that tell a socket from an earlier one of the same path, by path. */
  readonly sockets: ReadonlyMap<string, string>;
  readonly directories: readonly string[];
  /** True when a limit left sockets or directories out. */
  readonly truncated: boolean;
}

/** Most sockets and directories of one walk, and its greatest depth: whoever may write there must not keep the node busy. */
const maxSockets = 256;
const maxDirectories = 64;
const maxDepth = 8;
/** Sockets that are looked at, at the same time. */
const looksAtOnce = 16;

/** Finds sockets in a directory and below it; names that begin with a dot are left out, links are not followed, and what is beyond the
 *  limits is left out. @throws the host's failures, not_found for the directory itself: nothing is known then. */
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
        await unlessGone(walk(below, depth + 1));
      else truncated = true;
    }
  };
  await walk(directory, 1);
  const turns = createTurns(looksAtOnce);
  const looked = paths.map((path) =>
    turns(async () => {
      const found = await unlessGone(fs.lstat(path, signal));
      return found?.kind === "socket" ? [[path, `${found.inode} ${found.modifiedAt}`] as const] : [];
    }),
  );
  return { sockets: new Map((await Promise.all(looked)).flat()), directories, truncated };
}
