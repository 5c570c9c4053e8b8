import { isRecord } from "../lib/record.ts";
import type { NamespacedMeta } from "../objects.ts";
import type { FleetCondition, GraftedNode, GraftedNodeSpec, OwnerStatus } from "./grafted-node.ts";
import type { Disruption } from "./roll-out.ts";

/** Machines that share settings; `replicas` of them are active. */
export interface GraftedNodePool {
  readonly metadata: NamespacedMeta;
  readonly spec: {
    /** Defaults for the members. A field that a member sets itself takes precedence. */
    readonly template?: Partial<GraftedNodeSpec>;
    /** Number of active members; all by default. */
    readonly replicas?: number;
    readonly disruption?: Disruption;
  };
  readonly status?: PoolStatus;
}

export interface PoolStatus {
  readonly observedGeneration?: number;
  /** Number of objects that refer to the pool (`members`), of active ones among them (`replicas`), and of active ones that are Ready, or
   *  that run with the template. */
  readonly members: number;
  readonly replicas: number;
  readonly readyReplicas: number;
  readonly updatedReplicas: number;
  /** Names of the active members, if the pool limits their number. */
  readonly activeMembers?: readonly string[];
  /** The template that is rolled out, and the names of the members that may restart now to run with it. */
  readonly rollOut?: { readonly template: string; readonly restarting: readonly string[] };
  /** The replica that decides about the pool. */
  readonly owner?: OwnerStatus;
  readonly conditions: readonly FleetCondition[];
}

/** The facts of a pool's member on which the choice of active members depends. */
export interface PoolMember {
  readonly name: string;
  /** False if `active` is false in its specification, or in the template. */
  readonly mayBeActive: boolean;
  /** True if it was active before. */
  readonly wasActive: boolean;
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

/** Own values take precedence; records are merged, lists are replaced. */
function merged<T extends object>(defaults: object, own: T): T {
  const before = new Map<string, unknown>(Object.entries(defaults));
  const records: Record<string, unknown> = {};
  for (const [field, value] of Object.entries(own)) {
    const inherited = before.get(field);
    if (isRecord(inherited) && isRecord(value)) records[field] = merged(inherited, value);
  }
  return { ...defaults, ...own, ...records };
}

/** Chooses the active members. Members that are active, or are nodes already, come first, those with the most pods before others: scaling
 *  down a pool then ends the fewest pods. Pure. */
export function activeMembers({ spec: { replicas } }: GraftedNodePool, members: readonly PoolMember[]): Set<string> {
  const candidates = members.filter(({ mayBeActive }) => mayBeActive);
  const ranked = candidates.toSorted(
    (one, other) =>
      Number(other.wasActive) - Number(one.wasActive) ||
      Number(other.isServed) - Number(one.isServed) ||
      other.pods - one.pods ||
      (one.name < other.name ? -1 : 1),
  );
  return new Set(ranked.slice(0, replicas ?? ranked.length).map(({ name }) => name));
}

/** Path of a namespace's GraftedNodePools, or of one of them. */
export function poolPath(namespace: string, name?: string): string {
  const all = `/apis/graftlet.dev/v1alpha1/namespaces/${encodeURIComponent(namespace)}/graftednodepools`;
  return name === undefined ? all : `${all}/${encodeURIComponent(name)}`;
}
