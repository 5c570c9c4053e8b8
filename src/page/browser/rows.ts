import type { MachineReport, PodView } from "../messages.ts";
import { latest } from "./history.ts";
import { type FleetModel, type Model, type Scope, trackOf } from "./model.ts";

/** A pod with its newest usage; unknown values are undefined. */
export interface Row extends PodView {
  readonly node: string;
  readonly cpu: number | undefined;
  readonly memory: number | undefined;
  readonly rx: number | undefined;
  readonly tx: number | undefined;
  readonly disk: number | undefined;
}

/** A machine that another replica serves, or nobody. */
export interface MachineRow extends Pick<MachineReport, "name" | "pods"> {
  /** Empty if nobody serves it. */
  readonly owner: string;
  /** `Ready`, or the reason why not. */
  readonly status: string;
  readonly bad: boolean;
  readonly address: string;
  readonly why: string;
}

export interface Sorting<R> {
  readonly by: keyof R;
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

/** Rows for the machines of other replicas. Pure. */
export function machineRowsOf({ names, machines }: FleetModel): readonly MachineRow[] {
  return names
    .flatMap((name) => machines.get(name) ?? [])
    .map(({ name, owner = "", ready, reason, message, address = "", pods }) => ({
      name,
      owner,
      status: ready ? "Ready" : reason || "NotReady",
      bad: !ready,
      address,
      pods,
      why: ready ? "" : message,
    }));
}

/** The texts of a pod's row in which a filter searches. */
export function searchedInPod({ namespace, name, node, status }: Row): string {
  return `${namespace}/${name} ${node} ${status}`;
}

/** The texts of a machine's row in which a filter searches. */
export function searchedInMachine({ name, owner, status, address }: MachineRow): string {
  return `${name} ${owner} ${status} ${address}`;
}

/** Rows that match every word of the filter, sorted; ties are sorted by name. Pure. @param searched text of a row that is searched. */
export function chosenRows<R extends { readonly name: string }>(
  rows: readonly R[],
  searched: (row: R) => string,
  filter: string,
  { by, down }: Sorting<R>,
): readonly R[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    const text = searched(row).toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const sign = down ? -1 : 1;
  return found.toSorted((one, other) => sign * compare(one[by], other[by]) || compare(one.name, other.name));
}

/** Values of a column have one type; undefined sorts first. */
function compare<T>(one: T, other: T): number {
  if (one === other) return 0;
  if (one === undefined || one === null) return -1;
  if (other === undefined || other === null) return 1;
  return one < other ? -1 : 1;
}
