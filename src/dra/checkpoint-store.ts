import { claimCheckpoint } from "../host/layout.ts";
import { replaceFile } from "../host/replace-file.ts";
import { coalesce } from "../lib/coalesce.ts";
import { hasCode, ignoreNotFound, messageOf, throwIfAborted } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { HostFs } from "../seams/host.ts";
import { decodeCheckpoint, encodeCheckpoint } from "./checkpoint.ts";
import type { ClaimRecords } from "./claim-records.ts";

export interface CheckpointStoreDeps {
  readonly fs: Pick<HostFs, "readFile" | "apply">;
  readonly rootDir: string;
  readonly records: ClaimRecords;
  readonly log: Logger;
}

/** Checkpoint of the claims that pods use, on the target. */
export interface CheckpointStore {
  /** Loads the checkpoint; an unreadable one counts as empty. @throws unavailable. */
  load(signal: AbortSignal): Promise<void>;
  /** Resolves once `load` has finished. */
  loaded(signal: AbortSignal): Promise<void>;
  /** Saves the checkpoint. @throws Error in the kubelet's words. */
  save(): Promise<void>;
}

/** Creates the store; nothing is read before `load`. */
export function createCheckpointStore({ fs, rootDir, records, log }: CheckpointStoreDeps): CheckpointStore {
  const path = `${rootDir}/${claimCheckpoint}`;
  const read = Promise.withResolvers<void>();
  const write = coalesce(() => fs.apply(replaceFile(path, encodeCheckpoint(records.all()), 0o600)));
  return {
    async load(signal) {
      try {
        const text = await ignoreNotFound(fs.readFile(path, { signal }));
        if (text) records.restore(decodeCheckpoint(text));
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "unavailable", "deadline_exceeded")) throw error;
        log.error({ err: error, path }, "cannot read the checkpoint of ResourceClaims; starting without claims");
      }
      read.resolve();
    },
    loaded: (signal) => untilAborted(read.promise, signal),
    async save() {
      try {
        await write();
      } catch (error) {
        throw new Error(`checkpoint ResourceClaim state: ${messageOf(error)}`, { cause: error });
      }
    },
  };
}
