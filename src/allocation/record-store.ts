import { coalesce } from "../lib/coalesce.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { HostFs } from "../seams/host.ts";
import { type LoadedRecords, type ResourceRecord, readRecords, writeRecords } from "./resource-records.ts";

export interface RecordStoreDeps extends ClockAndLog {
  readonly fs: Pick<HostFs, "readFile" | "apply">;
  readonly rootDir: string;
}

export interface RecordStore extends Service {
  /** Records of a kubelet that used the root directory before. */
  kubeletCheckpoints(): LoadedRecords["kubelet"];
  /** Removes and returns the record of a pod that has been added. */
  claim(uid: string): ResourceRecord | undefined;
  forget(uid: string): void;
  /** UIDs of recorded pods that have not been added yet. */
  uids(): readonly string[];
  /** Writes the current records. @throws if the target cannot be written to. */
  save(): Promise<void>;
}

const retryDelayMs = 1_000;
const writeTimeoutMs = 30_000;

/** Creates the store of resource records on the target. Ready once the records have been read.
 *  @param currentRecords returns the current records of pods that have been added. */
export function createRecordStore(
  { fs, rootDir, clock, log }: RecordStoreDeps,
  currentRecords: () => ReadonlyMap<string, ResourceRecord>,
): RecordStore {
  const waiting = new Map<string, ResourceRecord>();
  let kubelet: LoadedRecords["kubelet"] = { allocated: new Map(), inForce: new Map() };
  const read = async (signal: AbortSignal) => {
    const found = await readRecords(fs, rootDir, log, signal);
    kubelet = found.kubelet;
    for (const [uid, record] of found.pods) waiting.set(uid, record);
  };
  return {
    name: "resource-records",
    async ready(signal) {
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
    run: (signal) => onAbort(signal),
    kubeletCheckpoints: () => kubelet,
    claim(uid) {
      const record = waiting.get(uid);
      waiting.delete(uid);
      return record;
    },
    forget: (uid) => void waiting.delete(uid),
    uids: () => [...waiting.keys()],
    save: coalesce(() =>
      writeRecords(fs, rootDir, new Map([...waiting, ...currentRecords()]), clock.within(writeTimeoutMs)),
    ),
  };
}
