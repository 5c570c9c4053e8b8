import { isRecord } from "../lib/record.ts";
import type { NamespacedMeta } from "../objects.ts";
import type { FleetCondition, GraftedNode, GraftedNodeSpec } from "./grafted-node.ts";
import type { Disruption } from "./roll-out.ts";

/** Machines that share settings, and of which a number is active. */
export interface GraftedNodePool {
  readonly metadata: NamespacedMeta;
  readonly spec: {
    /** Defaults of its members, each of which wins field by field. */
    readonly template?: Partial<GraftedNodeSpec>;
    /** How many members are active; all unless given. */
    readonly replicas?: number;
    readonly disruption?: Disruption;
  };
  readonly status?: PoolStatus;
}

export interface PoolStatus {
  readonly observedGeneration?: number;
  /** Number of objects that refer to the pool; of these, the number of active ones; and of the active ones, how many are Ready, and how many
   *  run with the template. */
  readonly members: number;
  readonly replicas: number;
  readonly readyReplicas: number;
  readonly updatedReplicas: number;
  readonly conditions: readonly FleetCondition[];
}

/** A member of a pool, as far as the choice of active ones needs it. */
export interface PoolMember {
  readonly name: string;
  /** False if its own specification takes it out. */
  readonly mayBeActive: boolean;
  /** True if its machine is a node now. */
  readonly isServed: boolean;
  /** Number of its pods. */
  readonly pods: number;
}

/** The object with the defaults of its pool. Pure. */
export function withDefaults(object: GraftedNode, pool: GraftedNodePool | undefined): GraftedNode {
  const template = pool?.spec.template;
  return template ? { ...object, spec: merged(template, object.spec) } : object;
}

/** Own values win; records are merged, lists replaced. */
function merged<T extends object>(defaults: object, own: T): T {
  const before = new Map<string, unknown>(Object.entries(defaults));
  const records: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(own)) {
    const inherited = before.get(field);
    if (isRecord(inherited) && isRecord(value)) records[field] = merged(inherited, value);
  }
  return { ...defaults, ...own, ...records };
}

/** Names of the members that are active. Those that are nodes already stay so, as far as there is room, and of these those with the most
 *  pods: scaled down, a pool loses the fewest pods. Pure. */
export function activeMembers({ spec: { replicas } }: GraftedNodePool, members: readonly PoolMember[]): Set<string> {
  const candidates = members.filter(({ mayBeActive }) => mayBeActive);
  const ranked = candidates.toSorted(
    (one, other) =>
      Number(other.isServed) - Number(one.isServed) || other.pods - one.pods || (one.name < other.name ? -1 : 1),
  );
  return new Set(ranked.slice(0, replicas ?? ranked.length).map(({ name }) => name));
}

/** Path of a namespace's GraftedNodePools, or of one of them. */
export function poolPath(namespace: string, name?: string): string {
  const all = `/apis/graftlet.dev/v1alpha1/namespaces/${encodeURIComponent(namespace)}/graftednodepools`;
  return name === undefined ? all : `${all}/${encodeURIComponent(name)}`;
}
