import type { Clock } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import type { Service } from "../lib/service-group.ts";
import type { Pod } from "../objects.ts";
import type { Complaints } from "./complaints.ts";
import { readManifests } from "./manifest-files.ts";
import { type Adopt, createManifestSet } from "./manifest-set.ts";
import { type PathWatch, watchPath } from "./watch-path.ts";

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
  readonly watch?: (path: string, onChange: () => void) => PathWatch;
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
  const read = async () => {
    try {
      const files = await readManifests(path);
      absent = files === undefined;
      // An empty set also says that this source has spoken.
      set(manifests.podsOf(files ?? []));
      if (absent)
        complaints.tell(path, "there is nothing: make the folder, and pods start as soon as it holds manifests");
      else if (files?.every((file) => file.path !== path)) complaints.settle(path);
    } catch (error) {
      complaints.tell(path, messageOf(error));
    }
  };
  return {
    name: "pods of files",
    async run(signal) {
      let changed = new AbortController();
      using watching = (deps.watch ?? watchPath)(path, () => changed.abort());
      while (!signal.aborted) {
        // What changes from here on is read in the next round.
        changed = new AbortController();
        await watching.renew();
        await read();
        const either = AbortSignal.any([signal, changed.signal]);
        await clock.sleep(absent ? absentMs : everyMs, either).catch(() => undefined);
        if (changed.signal.aborted) await clock.sleep(settleMs, signal).catch(() => undefined);
      }
    },
  };
}
