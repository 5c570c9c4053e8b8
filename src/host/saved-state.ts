import type { Clock } from "../lib/clock.ts";
import { coalesce } from "../lib/coalesce.ts";
import type { HostFs } from "../seams/host.ts";
import { readStateFile } from "./replace-file.ts";

/** A file with the state of a resource manager. */
export interface StateSource<State> {
  readonly file: string;
  /** @returns undefined for a corrupt text. */
  readonly parse: (text: string) => State | undefined;
}

const maxBytes = 4 * 2 ** 20;
const writeTimeoutMs = 30_000;

/** Reads the state of a resource manager: graftlet's own, or that of a kubelet that used the root directory before. Graftlet's own state
 *  is ignored while no pod has an allocation, so that the settings of a drained node can be changed.
 *  @returns undefined if there is none; state undefined if the file is corrupt. @throws if the target cannot be read. */
export async function readSavedState<State extends { readonly assigned: ReadonlyMap<string, unknown> }>(
  fs: Pick<HostFs, "readFile">,
  { own, kubelets }: { readonly own: StateSource<State>; readonly kubelets: StateSource<State> },
  signal: AbortSignal,
): Promise<{ readonly file: string; readonly state: State | undefined } | undefined> {
  const [ownText, kubeletText] = await Promise.all(
    [own, kubelets].map(({ file }) => readStateFile(fs, file, maxBytes, signal)),
  );
  const { file, parse } = ownText === undefined ? kubelets : own;
  const text = ownText ?? kubeletText;
  if (text === undefined) return undefined;
  const state = parse(text);
  const isUnused = ownText !== undefined && state?.assigned.size === 0;
  return isUnused ? undefined : { file, state };
}

/** Saves a state that changes in memory. */
export interface StateStore {
  /** Saves the current state; calls made during a write share the next one. @throws if the target cannot be written. */
  save(): Promise<void>;
  /** True if the last write failed, or nothing has been written. */
  isUnsaved(): boolean;
}

export function createStateStore(clock: Clock, write: (signal: AbortSignal) => Promise<void>): StateStore {
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
  return { save, isUnsaved: () => unsaved };
}
