import type { Clock } from "../lib/clock.ts";
import { createSignal } from "../lib/signal.ts";

/** Read access to a column: one value per record, by UID. Values are immutable: a change replaces them. */
export interface Column<T> {
  get(uid: string): T | undefined;
  /** Snapshot of all values; the same array until the column changes. */
  list(): readonly T[];
  /** Snapshot of all values with their UIDs; the same array until the column changes. */
  entries(): readonly (readonly [uid: string, value: T])[];
  /** Calls back after each change of a value. @returns ends the calls. */
  onChange(listener: (uid: string) => void): () => void;
}

/** Write access to a column. It is handed out once: a column has one writer. */
export interface ColumnWriter<T> extends Column<T> {
  /** @returns false if the record has ended and the value was dropped. */
  set(uid: string, value: T): boolean;
  delete(uid: string): void;
}

/** Creates a column that only its creator reads and writes: values of existing records, freed when the work on the pod has ended. */
export type PrivateColumn = <T>() => ColumnWriter<T>;

/** A column's reader and writer, handed out separately. */
export interface ColumnPair<T> {
  readonly reader: Column<T>;
  readonly writer: ColumnWriter<T>;
}

/** A value with the time of its observation: an observation from before the end of a record does not re-create the record. */
export interface Observation {
  /** Clock.monotonic(). */
  readonly observedAt: number;
}

/** Records by UID. A record exists as long as one of its owners; when the last owner is deleted, all of its columns are freed. */
export interface Records {
  /** A column whose values create their record and keep it. Columns of scope `object` outlive those of scope `work`, which are
   *  freed with the owner of scope `work`. */
  owner<T>(scope: "object" | "work"): ColumnPair<T>;
  /** A column of observations. An observation creates a record, unless it was made before that record's end; it does not keep a
   *  record that has lost its owners. */
  observations<T extends Observation>(): ColumnPair<T>;
  /** A column whose values exist only in existing records: they neither create nor keep a record. */
  column<T>(scope?: "object" | "work"): ColumnPair<T>;
  /** Calls back when the work on a pod has ended and its values are freed. */
  onEnd(listener: (uid: string) => void): void;
}

/** Observations are assumed to take no longer than this, milliseconds: older record ends are forgotten. */
const maxObservationMs = 600_000;

interface StoredColumn {
  readonly kind: "owner" | "observation" | "column";
  readonly scope: "object" | "work";
  has(uid: string): boolean;
  free(uid: string): void;
}

/** Creates an empty table. @param clock dates the end of a record, to reject observations from before it. */
export function createRecords(clock: Pick<Clock, "monotonic">): Records {
  const columns: StoredColumn[] = [];
  const ended = createSignal<[uid: string]>();
  const endedAt = new Map<string, number>();
  const hasOwner = (uid: string) => columns.some(({ kind, has }) => kind === "owner" && has(uid));
  const exists = (uid: string) => columns.some(({ kind, has }) => kind !== "column" && has(uid));
  const free = (uid: string, which: (column: StoredColumn) => boolean) => {
    for (const column of columns) if (which(column)) column.free(uid);
    ended.send(uid);
  };
  const endRecord = (uid: string) => {
    const now = clock.monotonic();
    for (const [other, at] of endedAt) {
      if (now - at < maxObservationMs) break;
      endedAt.delete(other);
    }
    endedAt.delete(uid);
    endedAt.set(uid, now);
    free(uid, () => true);
  };
  const onRemoved = ({ kind, scope }: StoredColumn, uid: string) => {
    if (kind === "column") return;
    if (!hasOwner(uid)) endRecord(uid);
    else if (kind === "owner" && scope === "work")
      free(uid, (column) => column.kind === "column" && column.scope === "work");
  };
  const add = <T>(
    kind: StoredColumn["kind"],
    scope: StoredColumn["scope"],
    mayCreate: (uid: string, value: T) => boolean,
  ) => {
    const { writer, free: freeValue } = createColumn<T>();
    const stored: StoredColumn = { kind, scope, has: (uid) => writer.get(uid) !== undefined, free: freeValue };
    columns.push(stored);
    const guarded: ColumnWriter<T> = {
      ...writer,
      set: (uid, value) => (exists(uid) || mayCreate(uid, value)) && writer.set(uid, value),
      delete(uid) {
        if (!stored.has(uid)) return;
        writer.delete(uid);
        onRemoved(stored, uid);
      },
    };
    const { get, list, entries, onChange } = writer;
    return { reader: { get, list, entries, onChange }, writer: guarded };
  };
  return {
    owner: (of) => add("owner", of, () => true),
    observations: <T extends Observation>() =>
      add<T>(
        "observation",
        "work",
        (uid, { observedAt }) => observedAt > (endedAt.get(uid) ?? Number.NEGATIVE_INFINITY),
      ),
    column: (of = "work") => add("column", of, () => false),
    onEnd: ended.subscribe,
  };
}

/** A map that notifies subscribers of changes. */
function createColumn<T>(): { readonly writer: ColumnWriter<T>; readonly free: (uid: string) => void } {
  const values = new Map<string, T>();
  const updated = createSignal<[uid: string]>();
  let listed: readonly T[] | undefined;
  let entered: readonly (readonly [string, T])[] | undefined;
  const changed = (uid: string) => {
    listed = entered = undefined;
    updated.send(uid);
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
      onChange: updated.subscribe,
      set(uid, value) {
        values.set(uid, value);
        changed(uid);
        return true;
      },
      delete: remove,
    },
  };
}
