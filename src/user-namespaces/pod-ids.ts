import { podDirectory, podsDirectory } from "../host/layout.ts";
import { readStateFile, replaceFile } from "../host/replace-file.ts";
import type { Clock } from "../lib/clock.ts";
import { ignoreNotFound, messageOf, throwIfAborted } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { createSemaphore } from "../lib/semaphore.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { PodIds } from "../runtime/ports.ts";
import type { Host, HostFs } from "../seams/host.ts";
import { type IdSettings, readAvailableIds } from "./available-ids.ts";
import { type IdRange, type IdRanges, createIdRanges } from "./id-ranges.ts";
import { formatMappings, mappingsFile, maxMappingsBytes, parseMappings } from "./mappings-file.ts";

export interface PodIdsDeps {
  readonly host: Pick<Host, "run"> & { readonly fs: Pick<HostFs, "list" | "readFile" | "apply"> };
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
  readonly settings: IdSettings;
  readonly clock: Pick<Clock, "jitter">;
  readonly log: Logger;
}

/** Mode of pods' directories. */
const podMode = 0o750;
/** Maximum number of files that are read concurrently. */
const maxReads = 32;

/** Creates the manager of the IDs of pods with user namespaces. The target is read when the first such pod needs its IDs.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/user-namespaces/ */
export function createPodIds(deps: PodIdsDeps): PodIds & ResourceManager {
  const { host, rootDir, settings, clock, log } = deps;
  const inTurn = createSemaphore(1);
  /** Undefined if the files on the target have not been read. */
  let known: IdRanges | undefined;

  const load = async (signal: AbortSignal): Promise<IdRanges> => {
    const available = await readAvailableIds(host, settings, signal);
    const ranges = createIdRanges(available, settings.idsPerPod, (below) => Math.floor(clock.jitter(0, below)));
    for (const [uid, text] of await readMappings(deps, signal)) recordMappings(ranges, uid, text);
    known = ranges;
    return ranges;
  };
  const save = async (uid: string, range: IdRange, signal: AbortSignal): Promise<void> => {
    const made = [
      { kind: "mkdir", path: podDirectory(rootDir, uid), mode: podMode, parents: true } as const,
      ...replaceFile(mappingsFile(rootDir, uid), formatMappings(range), 0o600),
    ];
    await host.fs.apply(made, signal).catch((error: unknown) => {
      // The file may be there: it says what belongs to the pod.
      known = undefined;
      throw error;
    });
  };
  const removeMappings = async (uid: string): Promise<void> => {
    const ranges = known;
    if (!ranges?.get(uid)) return;
    try {
      await host.fs.apply([{ kind: "remove", path: mappingsFile(rootDir, uid) }]);
      ranges.release(uid);
    } catch (err) {
      // Read again, the range is free once the pod's directory is gone.
      known = undefined;
      log.debug({ err, uid }, "cannot remove the ID mappings of a pod; its directory will be removed");
    }
  };
  return {
    name: "user namespaces",
    rangeOf: ({ metadata: { uid } }, signal) =>
      inTurn(async () => {
        throwIfAborted(signal);
        const read = known ?? (await load(signal));
        const own = read.get(uid);
        // The directory of a static pod that runs again under its UID may have been removed.
        if (own && (await readStateFile(host.fs, mappingsFile(rootDir, uid), maxMappingsBytes, signal))) return own;
        try {
          // Pods that ended before the files were read have ranges until they are read again.
          const range = own ?? (read.isFull() ? await load(signal) : read).allocate(uid);
          await save(uid, range, signal);
          return range;
        } catch (error) {
          throwIfAborted(signal);
          throw new Error(`create user namespace: ${messageOf(error)}`, { cause: error });
        }
      }),
    async allocate() {
      return undefined;
    },
    allocatable: () => ({}),
    async prepareContainer() {
      return undefined;
    },
    release(uid) {
      if (known) void inTurn(() => removeMappings(uid));
    },
    services: [],
  };
}

function recordMappings(ranges: IdRanges, uid: string, text: string): void {
  try {
    ranges.record(uid, parseMappings(text));
  } catch (error) {
    throw new Error(`record pod mappings for existing pod "${uid}": ${messageOf(error)}`, { cause: error });
  }
}

/** Reads the mappings files of all pods with a directory. @returns their texts by the pods' UIDs. */
async function readMappings(
  { host: { fs }, rootDir }: PodIdsDeps,
  signal: AbortSignal,
): Promise<ReadonlyMap<string, string>> {
  const entries = (await ignoreNotFound(fs.list(podsDirectory(rootDir), signal))) ?? [];
  const limited = createSemaphore(maxReads);
  const texts = new Map<string, string>();
  await Promise.all(
    entries
      .filter(({ kind }) => kind === "directory")
      .map(({ name }) =>
        limited(async () => {
          throwIfAborted(signal);
          const text = await readStateFile(fs, mappingsFile(rootDir, name), maxMappingsBytes, signal);
          if (text !== undefined) texts.set(name, text);
        }),
      ),
  );
  return texts;
}
