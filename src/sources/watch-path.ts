import { type FSWatcher, watch } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

/** Watches a path of this machine, whatever takes its place. */
export interface PathWatch extends Disposable {
  /** Looks whether the path is still what is watched, and watches what is there now. */
  renew(): Promise<void>;
}

/** What changed: a file's entry in its directory (it came, went, or another took its place) or what is in the file. */
export interface PathChange {
  /** Absolute; undefined where the kernel does not say. */
  readonly path: string | undefined;
  readonly entry: boolean;
}

/** Calls back when something changes in a directory, or a file is replaced or written. A hint: what the kernel does not tell (of
 *  network file systems, or when watches have run out) is found by whoever looks regularly.
 *  @see https://man7.org/linux/man-pages/man7/inotify.7.html */
export function watchPath(path: string, onChange: (change: PathChange) => void): PathWatch {
  let watched: { readonly inode: number; readonly watcher: FSWatcher } | undefined;
  const stop = () => {
    watched?.watcher.close();
    watched = undefined;
  };
  return {
    async renew() {
      const found = await stat(path).catch(() => undefined);
      // A file is replaced by renaming another: its directory shows that.
      const directory = found?.isDirectory() ? path : dirname(path);
      const only = found?.isDirectory() ? undefined : basename(path);
      const inode = found && (await stat(directory).catch(() => undefined))?.ino;
      if (inode === watched?.inode) return;
      stop();
      if (inode === undefined) return;
      try {
        const watcher = watch(directory, { persistent: false }, (event, name) => {
          if (only !== undefined && name !== only) return;
          onChange({ path: name === null ? undefined : join(directory, name), entry: event === "rename" });
        });
        watcher.on("error", stop);
        watched = { inode, watcher };
      } catch {
        // Without a watch the regular look has to do.
        watched = undefined;
      }
    },
    [Symbol.dispose]: stop,
  };
}
