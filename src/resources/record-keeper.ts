import type { Clock } from "../lib/clock.ts";
import { coalesce } from "../lib/coalesce.ts";
import type { Logger } from "../lib/log.ts";
import { type Service, onAbort } from "../lib/service-group.ts";
import type { HostFs } from "../seams/host.ts";
import { type FoundRecords, type ResourceRecord, readRecords, writeRecords } from "./resource-records.ts";

export interface RecordKeeperDeps {
  readonly fs: Pick<HostFs, "readFile" | "apply">;
  readonly rootDir: string;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface RecordKeeper extends Service {
  /** Records of a kubelet that had the root directory before. */
  left(): FoundRecords["kubelet"];
  /** Hands over what is on record of a pod that has come. */
  claim(uid: string): ResourceRecord | undefined;
  forget(uid: string): void;
  /** Pods that have not come yet. */
  uids(): readonly string[];
  /** Puts on record what `now` tells by then. @throws when the target cannot be written to. */
  save(): Promise<void>;
}

const retryMs = 1_000;
const writeMs = 30_000;

/** Keeps what is on record of pods' resources, over this agent's life. Ready once it has been read.
 *  @param now what is to be on record of the pods that have come. */
export function createRecordKeeper(
  { fs, rootDir, clock, log }: RecordKeeperDeps,
  now: () => ReadonlyMap<string, ResourceRecord>,
): RecordKeeper {
  const waiting = new Map<string, ResourceRecord>();
  let kubelet: FoundRecords["kubelet"] = { allocated: new Map(), inForce: new Map() };
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
          log.info({ err: error }, "what pods have been given cannot be read, will try again");
          await clock.sleep(retryMs, signal).catch(() => undefined);
        }
      }
    },
    run: (signal) => onAbort(signal),
    left: () => kubelet,
    claim(uid) {
      const record = waiting.get(uid);
      waiting.delete(uid);
      return record;
    },
    forget: (uid) => void waiting.delete(uid),
    uids: () => [...waiting.keys()],
    save: coalesce(() => writeRecords(fs, rootDir, new Map([...waiting, ...now()]), clock.within(writeMs))),
  };
}
