import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import type { LogHost } from "./log-file.ts";

/** Polling interval of a directory without events, milliseconds, as in the kubelet. */
const pollMs = 1000;

/** Waits for changes in a directory. */
export interface Changes extends AsyncDisposable {
  /** Resolves when something may have changed since the last call, or after a second. @throws the signal's reason if it
   *  aborts. */
  next(): Promise<void>;
}

/** Watches a directory of the target if the host supports watches, and polls every second in addition. */
export function watchChanges(
  deps: { host: LogHost; clock: Clock; log: Logger },
  directory: string,
  signal: AbortSignal,
): Changes {
  const { clock, log } = deps;
  const host = deps.host.forUsers ?? deps.host;
  const stop = new AbortController();
  const until = AbortSignal.any([signal, stop.signal]);
  let changed = false;
  let wake = () => {};
  const watching = (async () => {
    if (!host.watch) return;
    for await (const _path of host.watch(directory, until)) {
      changed = true;
      wake();
    }
  })().catch((error: unknown) => {
    if (!until.aborted)
      log.debug({ directory, why: messageOf(error) }, "cannot watch log directory; polling every second");
  });
  return {
    async next() {
      if (!changed) {
        const awake = new AbortController();
        wake = () => awake.abort();
        await clock.sleep(pollMs, AbortSignal.any([until, awake.signal])).catch(() => {});
      }
      until.throwIfAborted();
      changed = false;
    },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await watching;
    },
  };
}
