import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";

/** Notifies about possible changes in directories. */
export interface DirectoryWatcher {
  /** Watches exactly these directories. @returns true if all of them have been watched since the last call. */
  watch(directories: readonly string[]): boolean;
  /** Stops all watches. */
  stop(): void;
}

export interface DirectoryWatcherDeps {
  readonly host: Pick<Host, "watch">;
  readonly onChange: () => void;
  readonly log: Logger;
}

/** Watches directories if the host supports it; a broken watch is restarted by the next call. */
export function createDirectoryWatcher({ host, onChange, log }: DirectoryWatcherDeps): DirectoryWatcher {
  const watches = new Map<string, AbortController>();
  const follow = async (directory: string, ending: AbortController) => {
    try {
      for await (const _path of host.watch?.(directory, ending.signal) ?? []) onChange();
    } catch (error) {
      log.debug({ directory, why: messageOf(error) }, "cannot watch plugin directory");
    } finally {
      if (watches.get(directory) === ending) watches.delete(directory);
    }
  };
  const drop = (directory: string) => {
    watches.get(directory)?.abort();
    watches.delete(directory);
  };
  return {
    watch(directories) {
      const wanted = new Set(directories);
      for (const directory of watches.keys()) if (!wanted.has(directory)) drop(directory);
      const added = directories.filter((directory) => !watches.has(directory));
      for (const directory of host.watch ? added : []) {
        const ending = new AbortController();
        watches.set(directory, ending);
        void follow(directory, ending);
      }
      return added.length === 0;
    },
    stop: () => [...watches.keys()].forEach(drop),
  };
}
