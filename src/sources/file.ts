import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Service } from "../lib/service-group.ts";
import type { Pod } from "../objects.ts";
import type { Complaints } from "./complaints.ts";
import { readManifests } from "./manifest-files.ts";
import { type Adopt, createManifestSet } from "./manifest-set.ts";
import { watchPath } from "./watch-path.ts";

export interface FileSourceDeps {
  /** KubeletConfiguration.staticPodPath: a directory or a file of the machine that graftlet runs on. */
  readonly path: string;
  /** KubeletConfiguration.fileCheckFrequency, milliseconds. */
  readonly everyMs: number;
  readonly nodeName: string;
  /** Takes the complete set of pods, each time the files have been read. */
  readonly set: (pods: readonly Pod[]) => void;
  readonly adopt: Adopt;
  readonly complaints: Complaints;
  readonly clock: Clock;
  readonly watch?: typeof watchPath;
}

/** Changes come in several: a file is made, then written, then closed. */
const settleMs = 100;
/** How often it is looked whether a path is there that was not. */
const absentMs = 1_000;

/** The source of static pods in files: read when something changes there, and regularly.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/ */
export function createFileSource(deps: FileSourceDeps): Service {
  const { path, everyMs, set, complaints, clock } = deps;
  const manifests = createManifestSet(deps);
  let absent = false;
  const read = async (entries: readonly string[], signal: AbortSignal) => {
    try {
      const files = await readManifests(path);
      absent = files === undefined;
      const back = files?.filter((file) => wentAndCame(file.path, entries) && manifests.isUnchanged(file)) ?? [];
      // Whoever takes a manifest away and puts it back asks for the pod to begin anew.
      const rest = files?.filter((file) => !back.includes(file)) ?? [];
      const without = back.length > 0 ? await manifests.podsOf(rest, signal) : undefined;
      const pods = await manifests.podsOf(files ?? [], signal);
      if (without) set(without);
      // An empty set also says that this source has spoken.
      set(pods);
      if (absent)
        complaints.tell(path, "there is nothing: make the folder, and pods start as soon as it holds manifests");
      else if (files?.every((file) => file.path !== path)) complaints.settle(path);
    } catch (error) {
      if (!signal.aborted) complaints.tell(path, messageOf(error));
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
        // What changes from here on is read in the next round.
        changed = new AbortController();
        await watching.renew();
        await read(entries.splice(0), signal);
        const either = AbortSignal.any([signal, changed.signal]);
        await clock.sleep(absent ? absentMs : everyMs, either).catch(() => undefined);
        if (changed.signal.aborted) await clock.sleep(settleMs, signal).catch(() => undefined);
      }
    },
  };
}

/** Whether the entry of a file that is there now has changed more than once: another that takes its place changes it once. */
function wentAndCame(path: string, entries: readonly string[]): boolean {
  return entries.filter((entry) => entry === path).length > 1;
}
