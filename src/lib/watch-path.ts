import { type FSWatcher, watch } from "node:fs";
import { stat } from "node:fs/promises";
import { basename, dirname, join } from "node:path";

/** The change: a file's entry in its directory (created, removed or replaced) or its contents. */
export interface PathChange {
  /** Absolute path; undefined if the kernel does not report it. */
  readonly path: string | undefined;
  readonly entry: boolean;
}

/** Calls back at changes in a directory, or when a file is replaced or written. Only a hint: changes that the kernel does not report
 *  (network file systems, exhausted watches) are found by regular polling.
 *  @see https://man7.org/linux/man-pages/man7/inotify.7.html */
export function watchPath(path: string, onChange: (change: PathChange) => void) {
  let watched: { readonly inode: number; readonly watcher: FSWatcher } | undefined;
  const stop = () => {
    watched?.watcher.close();
    watched = undefined;
  };
  return {
    /** Checks whether the path still refers to the watched file, and otherwise watches the new one. */
    async renew(): Promise<void> {
      const found = await stat(path).catch(() => undefined);
      // A file is replaced by renaming another: its directory reports that.
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
        // Without a watch, regular polling has to suffice.
        watched = undefined;
      }
    },
    [Symbol.dispose]: stop,
  };
}
