import type { PodView } from "../messages.ts";
import { latest } from "./history.ts";
import { type Model, type Scope, trackOf } from "./model.ts";

/** A pod with its newest usage; unknown values are undefined. */
export interface Row extends PodView {
  readonly node: string;
  readonly cpu: number | undefined;
  readonly memory: number | undefined;
  readonly rx: number | undefined;
  readonly tx: number | undefined;
  readonly disk: number | undefined;
}

export interface Sorting {
  readonly by: keyof Row;
  readonly down: boolean;
}

/** Rows for the pods of all nodes, or of the selected one. Pure. */
export function rowsOf(model: Model, scope: Scope): readonly Row[] {
  const nodes = scope.node === undefined ? model.nodes : [scope.node];
  return nodes.flatMap((node) =>
    (model.pods.get(node) ?? []).map((pod) => {
      const track = model.tracks.get(trackOf.pod(pod.uid));
      const [cpu, memory, rx, tx, disk] = (["cpu", "memory", "rx", "tx", "disk"] as const).map((metric) =>
        latest(track, metric),
      );
      return { ...pod, node, cpu, memory, rx, tx, disk };
    }),
  );
}

/** Rows that match every word of the filter, sorted; ties are sorted by name. Pure. */
export function chosenRows(rows: readonly Row[], filter: string, { by, down }: Sorting): readonly Row[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter(({ namespace, name, node, status }) => {
    const text = `${namespace}/${name} ${node} ${status}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const sign = down ? -1 : 1;
  return found.toSorted((one, other) => sign * compare(one[by], other[by]) || compare(one.name, other.name));
}

/** Values of a column have one type; undefined sorts first. */
function compare(one: Row[keyof Row], other: Row[keyof Row]): number {
  if (one === other) return 0;
  if (one === undefined) return -1;
  if (other === undefined) return 1;
  return one < other ? -1 : 1;
}
