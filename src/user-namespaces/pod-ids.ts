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
import { recordOf } from "../lib/record.ts";
import { parseBoundedJson } from "../lib/bounded-text.ts";

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
  /** Ranges of all pods; undefined if the mappings files on the target have to be read (again). */
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
      // The file may have been written nevertheless: read all files again to find out.
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
      // Read all files again: the range is free once the pod's directory is gone.
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
        // The directory may be missing: it was removed when a static pod ended that now runs again under the same UID.
        if (own && (await readStateFile(host.fs, mappingsFile(rootDir, uid), maxMappingsBytes, signal))) return own;
        try {
          // If no range is free, read the files again: this frees ranges of pods whose directories have been removed since.
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
    runnables: [],
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

/** Maximum size of a mappings file, bytes; a kubelet's file has 150 bytes. */
const maxMappingsBytes = 4096;

/** File with the ID mappings of a pod, at the kubelet's path in the pod's directory. */
function mappingsFile(rootDir: string, uid: string): string {
  return `${podDirectory(rootDir, uid)}/userns`;
}

/** Content of a pod's mappings file, in the kubelet's format: the mapping for users and groups is the same. */
export function formatMappings({ first, length }: IdRange): string {
  const mappings = [{ hostId: first, containerId: 0, length }];
  return JSON.stringify({ uidMappings: mappings, gidMappings: mappings });
}

/** Parses a pod's mappings file. @throws Error in the kubelet's words. (kubelet, parseUserNsFileAndRecord) */
export function parseMappings(text: string): IdRange {
  const { uidMappings, gidMappings } = fieldsOf(text);
  const uids = listOf(uidMappings);
  const gids = listOf(gidMappings);
  const [uid] = uids;
  const [gid] = gids;
  if (uids.length !== 1 || !uid) throw invalid("no more than one mapping allowed.");
  if (gids.length !== 1 || !gid) throw invalid("GID and UID mappings should be identical.");
  if (uid.hostId !== gid.hostId || uid.containerId !== gid.containerId || uid.length !== gid.length)
    throw invalid("GID and UID mapping should be identical");
  if (uid.containerId !== 0) throw invalid("UID 0 must be mapped");
  return { first: uid.hostId, length: uid.length };
}

function fieldsOf(text: string): Record<string, unknown> {
  try {
    return recordOf(parseBoundedJson(Buffer.from(text))) ?? {};
  } catch (error) {
    throw new Error(`invalid user namespace mappings file: ${messageOf(error)}`, { cause: error });
  }
}

function listOf(
  value: unknown,
): readonly { readonly hostId: number; readonly containerId: number; readonly length: number }[] {
  if (!Array.isArray(value)) return [];
  return value.map((entry: unknown) => {
    const { hostId, containerId, length } = recordOf(entry) ?? {};
    return { hostId: idOf(hostId), containerId: idOf(containerId), length: idOf(length) };
  });
}

/** Reads an unsigned 32-bit field; 0 if it is missing. */
function idOf(value: unknown = 0): number {
  if (typeof value === "number" && Number.isInteger(value) && value >= 0 && value < 2 ** 32) return value;
  throw new Error(`invalid user namespace mappings file: ${JSON.stringify(value)} is not an ID`);
}

function invalid(why: string): Error {
  return new Error(`invalid user namespace configuration: ${why}`);
}
