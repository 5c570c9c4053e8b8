import type { Clock } from "../lib/clock.ts";
import { coalesce } from "../lib/coalesce.ts";
import type { FileChange, HostFs } from "../seams/host.ts";
import type { StateFiles } from "./layout.ts";
import { readStateFile, replaceFile } from "./replace-file.ts";

/** Parses a file. @returns undefined if the text is corrupt. */
export type ParseState<State> = (text: string) => State | undefined;

const maxBytes = 4 * 2 ** 20;
const writeTimeoutMs = 30_000;

/** Reads the state of a resource manager. A state without assignments is ignored, so that the settings of a drained node may
 *  change.
 *  @returns undefined if there is no such state; `state` is undefined if the file is corrupt. @throws if the target cannot be read. */
export async function readSavedState<State extends { readonly assigned: ReadonlyMap<string, unknown> }>(
  fs: Pick<HostFs, "readFile">,
  files: StateFiles,
  parse: Readonly<Record<keyof StateFiles, ParseState<State>>>,
  signal: AbortSignal,
): Promise<{ readonly file: string; readonly state: State | undefined } | undefined> {
  const [former, current] = await Promise.all(
    [files.former, files.current].map((file) => readStateFile(fs, file, maxBytes, signal)),
  );
  const text = former ?? current;
  if (text === undefined) return undefined;
  const source = former === undefined ? "current" : "former";
  const state = parse[source](text);
  return state?.assigned.size === 0 ? undefined : { file: files[source], state };
}

/** Changes that replace the state of a resource manager. @param data the new content; undefined removes the state. */
export function replaceState({ former, current }: StateFiles, data: string | undefined): readonly FileChange[] {
  const change = data === undefined ? [{ kind: "remove", path: current } as const] : replaceFile(current, data, 0o600);
  return [...change, { kind: "remove", path: former }];
}

/** True unless a file's checksum shows that the file is damaged. Very old files have no checksum. @param expected the valid
 *  checksums, one per file format. */
export function isIntact(checksum: unknown, expected: readonly unknown[]): boolean {
  return checksum === undefined || checksum === 0 || expected.includes(checksum);
}

/** Saves a state that changes in memory. */
export function createStateStore(clock: Clock, write: (signal: AbortSignal) => Promise<void>) {
  let unsaved = true;
  const save = coalesce(async () => {
    unsaved = false;
    try {
      await write(clock.within(writeTimeoutMs));
    } catch (error) {
      unsaved = true;
      throw error;
    }
  });
  return {
    /** Saves the current state; calls made during a write share the next one. @throws if the target cannot be written. */
    save,
    /** True if the last write failed, or nothing has been written. */
    isUnsaved: () => unsaved,
  };
}
