import { coalesce } from "../lib/coalesce.ts";
import { hasCode, messageOf, throwIfAborted } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { untilAborted } from "../lib/runnables.ts";

export interface CheckpointDeps<Content> {
  readonly path: string;
  /** Reads the file; undefined if there is none. */
  readonly read: (signal: AbortSignal) => Promise<Content | undefined>;
  /** Restores the state from the file. @throws for a corrupt file. */
  readonly restore: (content: Content) => void;
  /** Writes the current state to the file. */
  readonly write: () => Promise<void>;
  /** Message of the log line for an unreadable file, and prefix of the error of a failed write. */
  readonly unreadable: string;
  readonly unwritable: string;
  readonly log: Logger;
}

/** Checkpoint of a resource manager's state on the target; nothing is read before `load`. */
export function createCheckpoint<Content>({ read, restore, log, ...deps }: CheckpointDeps<Content>) {
  const loaded = Promise.withResolvers<{ readonly isMissing: boolean }>();
  const write = coalesce(deps.write);
  return {
    /** Loads the checkpoint; an unreadable one counts as empty. @throws unavailable. */
    async load(signal: AbortSignal): Promise<void> {
      let isMissing = false;
      try {
        const content = await read(signal);
        isMissing = content === undefined;
        if (content !== undefined) restore(content);
      } catch (error) {
        throwIfAborted(signal);
        if (hasCode(error, "unavailable", "deadline_exceeded")) throw error;
        log.error({ err: error, path: deps.path }, deps.unreadable);
      }
      loaded.resolve({ isMissing });
    },
    /** Resolves once `load` has finished. */
    loaded: (signal: AbortSignal) => untilAborted(loaded.promise, signal),
    /** Saves the checkpoint. @param failure beginning of the error, if not `unwritable`. @throws Error in the kubelet's words. */
    async save(failure = deps.unwritable): Promise<void> {
      try {
        await write();
      } catch (error) {
        throw new Error(`${failure}: ${messageOf(error)}`, { cause: error });
      }
    },
  };
}
