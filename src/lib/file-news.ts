import { stat } from "node:fs/promises";
import { dirname } from "node:path";
import type { Clock } from "./clock.ts";
import { pause } from "./pause.ts";
import { watchPath } from "./watch-path.ts";

/** Pause after an event before the files are looked at, milliseconds: a pair of files is written one after the other, and a busy directory
 *  is not looked at for each of its events. */
const settleMs = 500;

/**
 * News of files of this machine, for a patrol that reads them: each call resolves once one of them has been written, replaced, created or
 * removed since the call before; also where a link on the way was exchanged, as in a mounted Secret.
 * Only a hint: what the kernel does not report is found by the patrol's own rounds.
 * @see https://man7.org/linux/man-pages/man7/inotify.7.html
 */
export function createFileNews(paths: readonly string[], clock: Clock): (signal: AbortSignal) => Promise<void> {
  const directories = [...new Set(paths.map((path) => dirname(path)))];
  let known: string | undefined;
  return async (signal) => {
    using watches = new DisposableStack();
    let wake = (): void => undefined;
    for (const directory of directories) await watches.use(watchPath(directory, () => wake())).renew();
    while (!signal.aborted) {
      const event = new Promise<void>((resolve) => (wake = resolve));
      const found = await fingerprint(paths);
      const isNew = known !== undefined && known !== found;
      known = found;
      if (isNew) return;
      await pause(clock, undefined, event, signal);
      await clock.sleep(settleMs, signal).catch(() => undefined);
    }
  };
}

/** Files as they are: each one's inode, size and time of change; empty for one that is not there. */
async function fingerprint(paths: readonly string[]): Promise<string> {
  const all = await Promise.all(paths.map((path) => stat(path, { bigint: true }).catch(() => undefined)));
  return all.map((found) => found && [found.dev, found.ino, found.size, found.mtimeNs, found.ctimeNs].join("-")).join();
}
