import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { Host } from "../seams/host.ts";

/** Hints that something in directories may have changed. */
export interface Hints {
  /** Watches these directories and no others. @returns true when all of them have been watched since the last call. */
  watch(directories: readonly string[]): boolean;
  /** Ends all watches. */
  stop(): void;
}

export interface HintsDeps {
  readonly host: Pick<Host, "watch">;
  readonly onChange: () => void;
  readonly log: Logger;
}

/** Watches directories where the host can; a watch that breaks is begun anew with the next call. */
export function createHints({ host, onChange, log }: HintsDeps): Hints {
  const watches = new Map<string, AbortController>();
  const follow = async (directory: string, ending: AbortController) => {
    try {
      for await (const _path of host.watch?.(directory, ending.signal) ?? []) onChange();
    } catch (error) {
      log.debug({ directory, why: messageOf(error) }, "cannot watch a directory of plugins");
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
