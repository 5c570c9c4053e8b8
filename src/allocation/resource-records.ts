import { readStateFile, replaceFile } from "../host/replace-file.ts";
import type { Logger, ClockAndLog } from "../lib/log.ts";
import { entriesOf, recordIn, recordOf } from "../lib/record.ts";
import type { Resources } from "../objects.ts";
import { type PodResources, readResources } from "../pod/pod-resources.ts";
import type { HostFs } from "../seams/host.ts";
import { ownDirectory, resourceCheckpoints } from "../host/layout.ts";
import { coalesce } from "../lib/coalesce.ts";
import { onAbort } from "../lib/runnables.ts";

/** Record of a pod that was resized in place. */
export interface ResourceRecord {
  readonly allocated: PodResources;
  /** Actuated resources of its containers, by container ID. */
  readonly inForce: Readonly<Record<string, Resources>>;
  /** Actuated pod-level resources, if known. */
  readonly wholeInForce?: Resources;
}

/** A kubelet's checkpoint, by pod UID. */
export type AllocationCheckpoint = ReadonlyMap<string, PodResources>;

export type LoadedRecords = Awaited<ReturnType<typeof readRecords>>;

const version = 1;
const maxBytes = 16 * 2 ** 20;

function recordsFile(rootDir: string): string {
  return `${ownDirectory(rootDir)}/resources.json`;
}

/** Reads the records in a root directory: graftlet's own, and a kubelet's checkpoints. A corrupt record file is renamed;
 *  the resources are then taken from the pods' containers. @throws if the target cannot be read. */
export async function readRecords(
  fs: Pick<HostFs, "readFile" | "apply">,
  rootDir: string,
  log: Logger,
  signal: AbortSignal,
) {
  const file = recordsFile(rootDir);
  const checkpoints = resourceCheckpoints(rootDir);
  const [own, allocated, actuated] = await Promise.all(
    [file, checkpoints.allocated, checkpoints.actuated].map((path) => readStateFile(fs, path, maxBytes, signal)),
  );
  const pods = own === undefined ? new Map<string, ResourceRecord>() : parseRecords(own);
  if (!pods) {
    log.warn({ file }, "cannot parse the resource record; renaming it");
    await fs.apply([{ kind: "rename", from: file, to: `${file}.torn` }], signal);
  }
  return {
    pods: pods ?? new Map<string, ResourceRecord>(),
    /** Checkpoints of a kubelet that used the root directory before. */
    kubelet: { allocated: parseCheckpoint(allocated), inForce: parseCheckpoint(actuated) },
  };
}

/** Atomically replaces the record file. */
async function writeRecords(
  fs: Pick<HostFs, "apply">,
  rootDir: string,
  pods: ReadonlyMap<string, ResourceRecord>,
  signal: AbortSignal,
): Promise<void> {
  const file = recordsFile(rootDir);
  const data = `${JSON.stringify({ version, pods: Object.fromEntries(pods) })}\n`;
  await fs.apply(replaceFile(file, data, 0o600), signal);
}

/** Parses graftlet's record file. @returns undefined if it is invalid. */
function parseRecords(text: string): Map<string, ResourceRecord> | undefined {
  const content = recordIn(text);
  if (content?.["version"] !== version) return undefined;
  const pods = entriesOf(content["pods"]).flatMap(([uid, value]) => {
    const { allocated, inForce, wholeInForce } = recordOf(value) ?? {};
    const given = podResourcesOf(recordOf(allocated)?.["containers"], recordOf(allocated)?.["pod"]);
    const whole = readResources(wholeInForce);
    const record = { allocated: given, inForce: resourceMap(inForce), ...(whole && { wholeInForce: whole }) };
    return [[uid, record] as const];
  });
  return new Map(pods);
}

/** Parses a kubelet's checkpoint: JSON as a string in JSON, with a checksum. An invalid checkpoint is treated as empty.
 *  (kubelet, allocation/state) */
function parseCheckpoint(text: string | undefined): AllocationCheckpoint {
  const data = text === undefined ? undefined : recordIn(text)?.["data"];
  const entries = typeof data === "string" ? recordIn(data)?.["entries"] : undefined;
  return new Map(
    entriesOf(entries).map(([uid, value]) => {
      const pod = recordOf(value);
      return [uid, podResourcesOf(pod?.["ContainerResources"], pod?.["PodLevelResources"])] as const;
    }),
  );
}

function podResourcesOf(containers: unknown, whole: unknown): PodResources {
  const pod = readResources(whole);
  return { containers: resourceMap(containers), ...(pod && { pod }) };
}

function resourceMap(value: unknown): Record<string, Resources> {
  return Object.fromEntries(
    entriesOf(value).flatMap(([name, entry]) => {
      const resources = readResources(entry);
      return resources ? [[name, resources] as const] : [];
    }),
  );
}

export interface RecordStoreDeps extends ClockAndLog {
  readonly fs: Pick<HostFs, "readFile" | "apply">;
  readonly rootDir: string;
}

const retryDelayMs = 1_000;
const writeTimeoutMs = 30_000;

/** Creates the store of resource records on the target. Ready once the records have been read.
 *  @param currentRecords returns the current records of pods that have been added. */
export function createRecordStore(
  { fs, rootDir, clock, log }: RecordStoreDeps,
  currentRecords: () => ReadonlyMap<string, ResourceRecord>,
) {
  const waiting = new Map<string, ResourceRecord>();
  let kubelet: LoadedRecords["kubelet"] = { allocated: new Map(), inForce: new Map() };
  const read = async (signal: AbortSignal) => {
    const found = await readRecords(fs, rootDir, log, signal);
    kubelet = found.kubelet;
    for (const [uid, record] of found.pods) waiting.set(uid, record);
  };
  return {
    name: "resource-records",
    async ready(signal: AbortSignal) {
      while (!signal.aborted) {
        try {
          return await read(signal);
        } catch (error) {
          if (signal.aborted) return;
          log.info({ err: error }, "cannot read recorded allocations; retrying");
          await clock.sleep(retryDelayMs, signal).catch(() => undefined);
        }
      }
    },
    run: (signal: AbortSignal) => onAbort(signal),
    /** Records of a kubelet that used the root directory before. */
    kubeletCheckpoints: (): LoadedRecords["kubelet"] => kubelet,
    /** Removes and returns the record of a pod that has been added. */
    claim(uid: string): ResourceRecord | undefined {
      const record = waiting.get(uid);
      waiting.delete(uid);
      return record;
    },
    forget: (uid: string): void => void waiting.delete(uid),
    /** UIDs of recorded pods that have not been added yet. */
    uids: (): readonly string[] => [...waiting.keys()],
    /** Writes the current records. @throws if the target cannot be written to. */
    save: coalesce(() =>
      writeRecords(fs, rootDir, new Map([...waiting, ...currentRecords()]), clock.within(writeTimeoutMs)),
    ),
  };
}
