/** A map with a size limit that drops the least recently used entry. */
export type BoundedMap<V> = ReturnType<typeof createBoundedMap<V>>;

/** @param max entries kept. */
export function createBoundedMap<V>(max: number) {
  const entries = new Map<string, V>();
  const put = (key: string, value: V) => {
    entries.delete(key);
    entries.set(key, value);
  };
  return {
    get(key: string): V | undefined {
      const value = entries.get(key);
      if (value !== undefined) put(key, value);
      return value;
    },
    set(key: string, value: V): void {
      put(key, value);
      if (entries.size <= max) return;
      const oldest = entries.keys().next();
      if (!oldest.done) entries.delete(oldest.value);
    },
    delete: (key: string) => void entries.delete(key),
  };
}
