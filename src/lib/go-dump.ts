// Formats Go values like k8s.io/utils/dump. The checksums in the kubelet's checkpoints are computed from this text.

/** Dumps a map. @param entries keys, and dumped values, in any order. */
export function dumpMap(entries: Iterable<readonly [key: string | number, value: string]>): string {
  const sorted = [...entries].sort(([a], [b]) => compareKeys(a, b));
  return `map[${sorted.map(([key, value]) => `${key}:${value}`).join(" ")}]`;
}

/** Dumps a list. @param items already dumped. */
export function dumpList(items: Iterable<string | number>): string {
  return `[${[...items].join(" ")}]`;
}

function compareKeys(a: string | number, b: string | number): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return Buffer.compare(Buffer.from(String(a)), Buffer.from(String(b)));
}
