/** A map with a size limit that drops the least recently used entry. */
export interface BoundedMap<V> {
  get(key: string): V | undefined;
  set(key: string, value: V): void;
  delete(key: string): void;
}

/** @param max entries kept. */
export function createBoundedMap<V>(max: number): BoundedMap<V> {
  const entries = new Map<string, V>();
  const put = (key: string, value: V) => {
    entries.delete(key);
    entries.set(key, value);
  };
  return {
    get(key) {
      const value = entries.get(key);
      if (value !== undefined) put(key, value);
      return value;
    },
    set(key, value) {
      put(key, value);
      if (entries.size <= max) return;
      const oldest = entries.keys().next();
      if (!oldest.done) entries.delete(oldest.value);
    },
    delete: (key) => void entries.delete(key),
  };
}
