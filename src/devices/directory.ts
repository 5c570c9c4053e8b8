import { posix } from "node:path";
import { pluginDirectoryOf, pluginFiles } from "../host/layout.ts";
import { replaceFile } from "../host/replace-file.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";

/** Directory on the target for the sockets of the node and its device plugins. */
export type PluginDirectory = ReturnType<typeof createPluginDirectory>;

/** @see https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ */
export function createPluginDirectory(fs: HostFs, rootDir: string) {
  const path = posix.normalize(pluginDirectoryOf(rootDir));
  const own = posix.join(path, pluginFiles.socket);
  const checkpoint = posix.join(path, pluginFiles.checkpoint);
  return {
    socket: own,
    /** Path of a plugin's socket, from the endpoint in its registration; undefined for a path outside the directory, or the node's
     *  own socket. */
    pluginSocket(endpoint: string): string | undefined {
      const socket = posix.join(path, endpoint);
      return socket.startsWith(`${path}/`) && socket !== own ? socket : undefined;
    },
    /** Creates the directory, and removes stale sockets. */
    async prepare(signal: AbortSignal) {
      await fs.apply([{ kind: "mkdir", path, mode: 0o750, parents: true }], signal);
      const stale = (await fs.list(path, signal)).filter(({ kind }) => kind === "socket");
      if (stale.length === 0) return;
      await fs.apply(
        stale.map(({ name }) => ({ kind: "remove", path: posix.join(path, name) })),
        signal,
      );
    },
    /** Text of the checkpoint; undefined if it does not exist. */
    async readCheckpoint(signal: AbortSignal): Promise<string | undefined> {
      return (await ignoreNotFound(fs.readFile(checkpoint, { signal })))?.toString("utf8");
    },
    /** Replaces the checkpoint atomically. */
    async writeCheckpoint(text: string) {
      await fs.apply(replaceFile(checkpoint, text, 0o600));
    },
  };
}
