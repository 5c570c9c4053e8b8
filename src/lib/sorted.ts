/** Sorts fields by name, as Go does when it marshals a map. Pure. */
export function sortedByKey<T>(fields: Readonly<Record<string, T>>): Record<string, T> {
  return Object.fromEntries(Object.entries(fields).sort(([one], [other]) => (one < other ? -1 : 1)));
}
