import { pluginFiles } from "../host/plugin-paths.ts";
import { coalesce } from "../lib/coalesce.ts";
import { hasCode, messageOf, throwIfAborted } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { untilAborted } from "../lib/service-group.ts";
import type { Allocations } from "./allocations.ts";
import { type Checkpoint, decodeCheckpoint, encodeCheckpoint } from "./checkpoint.ts";
import type { PluginDirectory } from "./directory.ts";
import type { Inventory } from "./inventory.ts";

export interface RecordDeps {
  readonly directory: Pick<PluginDirectory, "readCheckpoint" | "writeCheckpoint">;
  readonly inventory: Inventory;
  readonly allocations: Allocations;
  readonly log: Logger;
}

/** Checkpoint of the device state on the target. */
export interface DeviceRecord {
  /** Loads the checkpoint; an unreadable one counts as empty. @throws unavailable. */
  load(signal: AbortSignal): Promise<void>;
  /** Resolves when `load` has finished. @returns a flag for a missing checkpoint. */
  loaded(signal: AbortSignal): Promise<{ readonly anew: boolean }>;
  /** Saves the checkpoint. @throws Error in the kubelet's words. */
  save(): Promise<void>;
}

export function createRecord({ directory, inventory, allocations, log }: RecordDeps): DeviceRecord {
  const read = Promise.withResolvers<{ readonly anew: boolean }>();
  const write = coalesce(() =>
    directory.writeCheckpoint(
      encodeCheckpoint({ allocations: allocations.entries(), registered: inventory.registered() }),
    ),
  );
  const restore = (checkpoint: Checkpoint) => {
    for (const { uid, container, resource, ...allocation } of checkpoint.allocations)
      allocations.set({ uid, container, resource }, allocation);
    inventory.remembered([...checkpoint.registered.keys()]);
  };
  return {
    async load(signal) {
      let anew = false;
      try {
        const text = await directory.readCheckpoint(signal);
        anew = text === undefined;
        if (text !== undefined) restore(decodeCheckpoint(text));
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "unavailable", "deadline_exceeded")) throw error;
        log.error({ err: error }, "cannot read the device checkpoint; starting without allocations");
      }
      read.resolve({ anew });
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
