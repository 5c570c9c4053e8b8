import { type NumaNodes, countNodes, nodeSets } from "./lib/numa-nodes.ts";

/** A way to satisfy a request for a resource from certain NUMA nodes.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/ */
export interface TopologyHint {
  /** Undefined for any nodes. */
  readonly nodes: NumaNodes | undefined;
  /** True if no set of fewer nodes could satisfy the request on an idle machine. */
  readonly preferred: boolean;
}

/** A hint that specifies nodes. */
export interface NodesHint extends TopologyHint {
  readonly nodes: NumaNodes;
}

/** Hints by resource name. A resource that is undefined or missing may come from any nodes; one with an empty list cannot be satisfied. */
export type TopologyHints = ReadonlyMap<string, readonly TopologyHint[] | undefined>;

/** The hint for allocations that no topology manager aligns. */
export const unaligned: TopologyHint = { nodes: undefined, preferred: false };

/** A request for a resource that belongs to NUMA nodes. */
export interface NodeDemand {
  /** IDs of the NUMA nodes that have the resource, in ascending order. */
  readonly ids: readonly number[];
  /** True if these nodes could satisfy the request on an idle machine. */
  readonly couldSatisfy: (nodes: NumaNodes) => boolean;
  /** True if these nodes can satisfy the request now. */
  readonly satisfies: (nodes: NumaNodes) => boolean;
}

/** Number of nodes above which a resource is not aligned: there are 2ⁿ sets of n nodes. */
const maxNodesOfHints = 16;

/** Returns hints for each set of nodes that can satisfy a request. Sets with as few nodes as an idle machine would need are preferred.
 *  @returns undefined, which means any nodes, for a resource of too many nodes.
 *  (kubelet, GetTopologyHints of the managers of CPUs and devices) */
export function hintsFor({ ids, couldSatisfy, satisfies }: NodeDemand): readonly NodesHint[] | undefined {
  if (ids.length > maxNodesOfHints) return undefined;
  const sets = [...nodeSets(ids)];
  const fewest = fewestNodes({ ids, couldSatisfy });
  return sets.filter(satisfies).map((nodes) => ({ nodes, preferred: countNodes(nodes) === fewest }));
}

/** Number of nodes that could satisfy a request on an idle machine; the number of all nodes if they could not. */
export function fewestNodes({ ids, couldSatisfy }: Pick<NodeDemand, "ids" | "couldSatisfy">): number {
  for (const nodes of nodeSets(ids)) if (couldSatisfy(nodes)) return countNodes(nodes);
  return ids.length;
}
