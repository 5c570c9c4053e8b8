import type { SourceName } from "../pipeline.ts";

/** One node-wide value with a single writer. Undefined until it has been written. */
export type ValuePair<T> = ReturnType<typeof createValue<T>>;

export interface ValueReader<T> {
  get(): T | undefined;
  /** Resolves on the first write. */
  readonly written: Promise<void>;
}

/** Creates a value that has not been written. */
export function createValue<T>() {
  let value: T | undefined;
  const written = Promise.withResolvers<void>();
  const get = () => value;
  const set = (next: T | undefined) => {
    value = next;
    written.resolve();
  };
  const reader: ValueReader<T> = { get, written: written.promise };
  return { reader, writer: { get, set } };
}

/** Pod sources that have reached a milestone, such as their first report. */
export interface SourceMilestone {
  /** All sources of this node. */
  readonly names: readonly SourceName[];
  /** True once every source has reached the milestone. */
  all(): boolean;
  /** Resolves once every source has reached the milestone. */
  readonly reached: Promise<void>;
}

export type SourceMilestonePair = ReturnType<typeof createSourceMilestone>;

/** Creates a milestone that no source has reached. */
export function createSourceMilestone(names: readonly SourceName[]) {
  const reachedBy = new Set<SourceName>();
  const reached = Promise.withResolvers<void>();
  const all = () => names.every((name) => reachedBy.has(name));
  const note = (source: SourceName) => {
    reachedBy.add(source);
    if (all()) reached.resolve();
  };
  if (all()) reached.resolve();
  return { reader: { names, all, reached: reached.promise }, writer: { note } };
}
