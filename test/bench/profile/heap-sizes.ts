import { readFileSync } from "node:fs";

interface Snapshot {
  readonly snapshot: {
    readonly meta: { readonly node_fields: readonly string[]; readonly node_types: readonly unknown[] };
  };
  readonly nodes: readonly number[];
  readonly strings: readonly string[];
}

/** Bytes of a heap snapshot by what they are: `object Map`, `string`, `code` …
 *  @see https://developer.chrome.com/docs/devtools/memory-problems/heap-snapshot-schema */
export function heapSizes(file: string): ReadonlyMap<string, number> {
  const { snapshot, nodes, strings } = JSON.parse(readFileSync(file, "utf8")) as Snapshot;
  const { node_fields: fields, node_types: types } = snapshot.meta;
  const [type, name, size] = ["type", "name", "self_size"].map((field) => fields.indexOf(field));
  const names = types[0] as readonly string[];
  const sizes = new Map<string, number>();
  for (let at = 0; at < nodes.length; at += fields.length) {
    const kind = names[nodes[at + (type ?? 0)] ?? 0] ?? "";
    const key = kind === "object" ? `object ${strings[nodes[at + (name ?? 0)] ?? 0]}` : kind;
    sizes.set(key, (sizes.get(key) ?? 0) + (nodes[at + (size ?? 0)] ?? 0));
  }
  return sizes;
}
