import type { SourceName } from "../pipeline.ts";

/** One value of the node, written by one actor. Undefined until it has been written. */
export interface CellPair<T> {
  readonly reader: CellReader<T>;
  readonly writer: { get(): T | undefined; set(value: T | undefined): void };
}

export interface CellReader<T> {
  get(): T | undefined;
  /** Resolves when it has been written for the first time. */
  readonly written: Promise<void>;
}

/** An empty cell. */
export function createCell<T>(): CellPair<T> {
  let value: T | undefined;
  const written = Promise.withResolvers<void>();
  const get = () => value;
  const set = (next: T | undefined) => {
    value = next;
    written.resolve();
  };
  return { reader: { get, written: written.promise }, writer: { get, set } };
}

/** Pod sources of a node that have got so far. */
export interface SourceMarks {
  /** Sources that this node has. */
  readonly names: readonly SourceName[];
  /** True once each source has got so far. */
  all(): boolean;
  /** Resolves when that is so. */
  readonly reached: Promise<void>;
}

export interface SourceMarksPair {
  readonly reader: SourceMarks;
  readonly writer: { note(source: SourceName): void };
}

/** Marks of sources, none of which has got so far. */
export function createSourceMarks(names: readonly SourceName[]): SourceMarksPair {
  const marked = new Set<SourceName>();
  const reached = Promise.withResolvers<void>();
  const all = () => names.every((name) => marked.has(name));
  const note = (source: SourceName) => {
    marked.add(source);
    if (all()) reached.resolve();
  };
  if (all()) reached.resolve();
  return { reader: { names, all, reached: reached.promise }, writer: { note } };
}
