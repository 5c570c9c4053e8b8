import { pluginFiles } from "../host/layout.ts";
import { coalesce } from "../lib/coalesce.ts";
import { hasCode, messageOf, throwIfAborted } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Allocations } from "./allocations.ts";
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from "./checkpoint.ts";
import type { PluginDirectory } from "./directory.ts";
import type { Inventory } from "./inventory.ts";

export interface CheckpointStoreDeps {
  readonly directory: Pick<PluginDirectory, "readCheckpoint" | "writeCheckpoint">;
  readonly inventory: Inventory;
  readonly allocations: Allocations;
  readonly log: Logger;
}

/** Checkpoint of the device state on the target. */
export interface CheckpointStore {
  /** Loads the checkpoint; an unreadable one counts as empty. @throws unavailable. */
  load(signal: AbortSignal): Promise<void>;
  /** Resolves when `load` has finished. @returns a flag for a missing checkpoint. */
  loaded(signal: AbortSignal): Promise<{ readonly isMissing: boolean }>;
  /** Saves the checkpoint. @throws Error in the kubelet's words. */
  save(): Promise<void>;
}

export function createCheckpointStore({
  directory,
  inventory,
  allocations,
  log,
}: CheckpointStoreDeps): CheckpointStore {
  const read = Promise.withResolvers<{ readonly isMissing: boolean }>();
  const write = coalesce(() =>
    directory.writeCheckpoint(
      encodeCheckpoint({ allocations: allocations.entries(), registered: inventory.registered() }),
    ),
  );
  const restore = (checkpoint: Checkpoint) => {
    for (const { uid, container, resource, ...allocation } of checkpoint.allocations)
      allocations.set({ uid, container, resource }, allocation);
    inventory.restore([...checkpoint.registered.keys()]);
  };
  return {
    async load(signal) {
      let isMissing = false;
      try {
        const text = await directory.readCheckpoint(signal);
        isMissing = text === undefined;
        if (text !== undefined) restore(decodeCheckpoint(text));
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "unavailable", "deadline_exceeded")) throw error;
        log.error({ err: error }, "cannot read the device checkpoint; starting without allocations");
      }
      read.resolve({ isMissing });
    },
    loaded: (signal) => untilAborted(read.promise, signal),
    async save() {
      try {
        await write();
      } catch (error) {
        const why = `failed to write checkpoint file "${pluginFiles.checkpoint}": ${messageOf(error)}`;
        throw new Error(why, { cause: error });
      }
    },
  };
}
