import { stat } from "node:fs/promises";
import { dirname, basename, join } from "node:path";
import { type FSWatcher, watch } from "node:fs";
import type { Clock } from "./clock.ts";
import { pause } from "./pause.ts";

/** Delay between an event and checking the files, milliseconds: pairs of files are written one after the other, and a busy
 *  directory should not be checked at every event. */
const debounceMs = 500;

/** Watches local files for a periodic reader: each call resolves once one of the files has been written, replaced, created or
 *  removed since the previous call, also if a link on the path was swapped, as in a mounted Secret. This is only a hint: changes
 *  that the kernel does not report are found by the periodic reads.
 *  @see https://man7.org/linux/man-pages/man7/inotify.7.html */
export function createFileWatcher(paths: readonly string[], clock: Clock): (signal: AbortSignal) => Promise<void> {
  const directories = [...new Set(paths.map((path) => dirname(path)))];
  let known: string | undefined;
  return async (signal) => {
    using watches = new DisposableStack();
    let wake = (): void => undefined;
    for (const directory of directories) await watches.use(watchPath(directory, () => wake())).renew();
    while (!signal.aborted) {
      const event = new Promise<void>((resolve) => (wake = resolve));
      const found = await fingerprint(paths);
      const hasChanged = known !== undefined && known !== found;
      known = found;
      if (hasChanged) return;
      await pause(clock, undefined, event, signal);
      await clock.sleep(debounceMs, signal).catch(() => undefined);
    }
  };
}

/** Inode, size and change time of each file; empty for a missing one. */
async function fingerprint(paths: readonly string[]): Promise<string> {
  const all = await Promise.all(paths.map((path) => stat(path, { bigint: true }).catch(() => undefined)));
  return all.map((found) => found && [found.dev, found.ino, found.size, found.mtimeNs, found.ctimeNs].join("-")).join();
}

/** A change: `entry` is true if a directory entry was created, removed or replaced, false if a file's contents changed. */
export interface PathChange {
  /** Absolute path; undefined if the kernel does not report it. */
  readonly path: string | undefined;
  readonly entry: boolean;
}

/** Calls back at changes in a directory, or when a file is replaced or written. The calls are only hints: changes that the kernel
 *  does not report (network file systems, exhausted watches) are found by regular polling.
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
