import type { Clock } from "../lib/clock.ts";

/** Reading end of a column: one value a row, by UID. Values are immutable: a change replaces them. */
export interface Column<T> {
  get(uid: string): T | undefined;
  /** Snapshot of all values; the same array until the column changes. */
  list(): readonly T[];
  /** Snapshot of all values with their UIDs; the same array until the column changes. */
  entries(): readonly (readonly [uid: string, value: T])[];
  /** Calls back after each change of a value. @returns ends the calls. */
  onChange(hear: (uid: string) => void): () => void;
}

/** Writing end of a column. It is handed out once: a column has one writer. */
export interface ColumnWriter<T> extends Column<T> {
  /** @returns false when the row has ended: the value is dropped. */
  set(uid: string, value: T): boolean;
  delete(uid: string): void;
}

/** Both ends of a column, handed out apart. */
export interface ColumnPair<T> {
  readonly reader: Column<T>;
  readonly writer: ColumnWriter<T>;
}

/** Values that were observed at some time: what was observed before a row ended does not bring it back. */
export interface Sighted {
  /** Clock.monotonic(). */
  readonly observedAt: number;
}

/** Rows by UID. A row lives as long as one of its roots; when the last is gone, all of its columns are freed at once. */
export interface Rows {
  /** A column whose values hold their row and begin it. Values of columns that are `of` the object outlive the row's other
   *  values: those end with the root `of` the work. */
  root<T>(of: "object" | "work"): ColumnPair<T>;
  /** A column of observations. One begins a row, unless it was made before the row's end; it does not keep a row that has lost
   *  its roots. */
  sighting<T extends Sighted>(): ColumnPair<T>;
  /** A column of rows that exist. */
  column<T>(of?: "object" | "work"): ColumnPair<T>;
  /** Calls back when the work on a pod is over and its values are freed. */
  onEnd(hear: (uid: string) => void): void;
}

/** Observations that took longer than this are older than any row that could hear of them, milliseconds. */
const longestSightMs = 600_000;

interface Stored {
  readonly kind: "root" | "sighting" | "column";
  readonly of: "object" | "work";
  has(uid: string): boolean;
  /** Frees the value. */
  free(uid: string): void;
}

/** An empty table. @param clock tells observations made before the end of a row from later ones. */
export function createRows(clock: Pick<Clock, "monotonic">): Rows {
  const columns: Stored[] = [];
  const hearers = new Set<(uid: string) => void>();
  const endedAt = new Map<string, number>();
  const isHeld = (uid: string) => columns.some(({ kind, has }) => kind === "root" && has(uid));
  const exists = (uid: string) => columns.some(({ kind, has }) => kind !== "column" && has(uid));
  const free = (uid: string, which: (column: Stored) => boolean) => {
    for (const column of columns) if (which(column)) column.free(uid);
    for (const hear of hearers) hear(uid);
  };
  const end = (uid: string) => {
    const now = clock.monotonic();
    for (const [other, at] of endedAt) {
      if (now - at < longestSightMs) break;
      endedAt.delete(other);
    }
    endedAt.delete(uid);
    endedAt.set(uid, now);
    free(uid, () => true);
  };
  const removed = ({ kind, of }: Stored, uid: string) => {
    if (kind === "column") return;
    if (!isHeld(uid)) end(uid);
    else if (kind === "root" && of === "work") free(uid, (column) => column.kind === "column" && column.of === "work");
  };
  const add = <T>(kind: Stored["kind"], of: Stored["of"], mayBegin: (uid: string, value: T) => boolean) => {
    const { writer, free: freeValue } = createColumn<T>();
    const stored: Stored = { kind, of, has: (uid) => writer.get(uid) !== undefined, free: freeValue };
    columns.push(stored);
    const guarded: ColumnWriter<T> = {
      ...writer,
      set: (uid, value) => (exists(uid) || mayBegin(uid, value)) && writer.set(uid, value),
      delete(uid) {
        if (!stored.has(uid)) return;
        writer.delete(uid);
        removed(stored, uid);
      },
    };
    const { get, list, entries, onChange } = writer;
    return { reader: { get, list, entries, onChange }, writer: guarded };
  };
  return {
    root: (of) => add("root", of, () => true),
    sighting: <T extends Sighted>() =>
      add<T>("sighting", "work", (uid, { observedAt }) => observedAt > (endedAt.get(uid) ?? Number.NEGATIVE_INFINITY)),
    column: (of = "work") => add("column", of, () => false),
    onEnd: (hear) => void hearers.add(hear),
  };
}

/** A map that tells of its changes. */
function createColumn<T>(): { readonly writer: ColumnWriter<T>; readonly free: (uid: string) => void } {
  const values = new Map<string, T>();
  const hearers = new Set<(uid: string) => void>();
  let listed: readonly T[] | undefined;
  let entered: readonly (readonly [string, T])[] | undefined;
  const changed = (uid: string) => {
    listed = entered = undefined;
    for (const hear of hearers) hear(uid);
  };
  const remove = (uid: string) => {
    if (values.delete(uid)) changed(uid);
  };
  return {
    free: remove,
    writer: {
      get: (uid) => values.get(uid),
      list: () => (listed ??= [...values.values()]),
      entries: () => (entered ??= [...values]),
      onChange(hear) {
        hearers.add(hear);
        return () => void hearers.delete(hear);
      },
      set(uid, value) {
        values.set(uid, value);
        changed(uid);
        return true;
      },
      delete: remove,
    },
  };
}
