import { posix } from "node:path";
import { unlessGone } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** Sockets in a directory and below it, as they were found. */
export interface FoundSockets {
  /** Marks that tell a socket from an earlier one of the same path, by path. */
  readonly sockets: ReadonlyMap<string, string>;
  readonly directories: readonly string[];
}

/** Finds sockets in a directory and below it; names that begin with a dot are left out, and links are not followed.
 *  @throws the host's failures, not_found for the directory itself: nothing is known then. */
export async function findSockets(fs: HostFs, directory: string, signal: AbortSignal): Promise<FoundSockets> {
  const entries = await fs.list(directory, signal);
  const shown = entries.filter(({ name }) => !name.startsWith("."));
  const named = (kind: string) => shown.filter((entry) => entry.kind === kind);
  const sockets = await Promise.all(
    named("socket").map(async ({ name }) => {
      const path = posix.join(directory, name);
      const found = await unlessGone(fs.lstat(path, signal));
      return found?.kind === "socket" ? [[path, `${found.inode} ${found.modifiedAt}`] as const] : [];
    }),
  );
  const below = await Promise.all(
    named("directory").map(({ name }) => unlessGone(findSockets(fs, posix.join(directory, name), signal))),
  );
  const parts = below.filter((part) => part !== undefined);
  return {
    sockets: new Map([...sockets.flat(), ...parts.flatMap((part) => [...part.sockets])]),
    directories: [directory, ...parts.flatMap((part) => part.directories)],
  };
}
