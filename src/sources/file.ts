import { messageOf } from "../lib/errors.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Pod } from "../objects.ts";
import { readManifests } from "./manifest-files.ts";
import { createManifestSet, type ManifestSetDeps } from "./manifest-set.ts";
import { watchPath } from "../lib/file-watcher.ts";

export interface FileSourceDeps extends ManifestSetDeps {
  /** KubeletConfiguration.staticPodPath: a directory or a file on the machine that graftlet runs on. */
  readonly path: string;
  /** KubeletConfiguration.fileCheckFrequency, milliseconds. */
  readonly everyMs: number;
  /** Receives the complete set of pods after each read of the files. */
  readonly set: (pods: readonly Pod[]) => void;
  readonly watch?: typeof watchPath;
}

/** Delay after a change, because changes come in groups: a file is created, then written, then closed. */
const changeDelayMs = 100;
/** Polling interval for a missing path. */
const missingPollIntervalMs = 1_000;

/** Source of static pods in files: read at each change, and regularly.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/ */
export function createFileSource(deps: FileSourceDeps): Runnable {
  const { path, everyMs, set, complaints, clock } = deps;
  const manifests = createManifestSet(deps);
  let absent = false;
  const read = async (entries: readonly string[], signal: AbortSignal) => {
    try {
      const files = await readManifests(path);
      absent = files === undefined;
      const back = files?.filter((file) => wasReplaced(file.path, entries) && manifests.isUnchanged(file)) ?? [];
      // Removing a manifest and putting it back restarts its pod.
      const rest = files?.filter((file) => !back.includes(file)) ?? [];
      const without = back.length > 0 ? await manifests.podsOf(rest, signal) : undefined;
      const pods = await manifests.podsOf(files ?? [], signal);
      if (without) set(without);
      // An empty set also marks the source as ready.
      set(pods);
      if (absent)
        complaints.report(
          path,
          "it does not exist: create the directory, and pods start as soon as it contains manifests",
        );
      else if (files?.every((file) => file.path !== path)) complaints.clear(path);
    } catch (error) {
      if (!signal.aborted) complaints.report(path, messageOf(error));
    }
  };
  return {
    name: "pods of files",
    async run(signal) {
      let changed = new AbortController();
      const entries: string[] = [];
      using watching = (deps.watch ?? watchPath)(path, (change) => {
        if (change.entry && change.path !== undefined) entries.push(change.path);
        changed.abort();
      });
      while (!signal.aborted) {
        // Later changes are read in the next round.
        changed = new AbortController();
        await watching.renew();
        await read(entries.splice(0), signal);
        const either = AbortSignal.any([signal, changed.signal]);
        await clock.sleep(absent ? missingPollIntervalMs : everyMs, either).catch(() => undefined);
        if (changed.signal.aborted) await clock.sleep(changeDelayMs, signal).catch(() => undefined);
      }
    },
  };
}

/** True if the directory entry of an existing file has changed more than once: a replacement by another file changes it once. */
function wasReplaced(path: string, entries: readonly string[]): boolean {
  return entries.filter((entry) => entry === path).length > 1;
}
