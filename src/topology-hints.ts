import { type NumaNodes, countNodes, nodeSets } from "./lib/numa-nodes.ts";

/** A way to satisfy a request for a resource: from these NUMA nodes.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/ */
export interface TopologyHint {
  /** Undefined: from any nodes. */
  readonly nodes: NumaNodes | undefined;
  /** True if no set of fewer nodes could satisfy the request on an idle machine. */
  readonly preferred: boolean;
}

/** A hint that names nodes. */
export interface NodesHint extends TopologyHint {
  readonly nodes: NumaNodes;
}

/** Hints by resource name. A resource with undefined, or without an entry, may come from any nodes; one with an empty list cannot be
 *  satisfied. */
export type TopologyHints = ReadonlyMap<string, readonly TopologyHint[] | undefined>;

/** The hint that containers are allocated with where no topology manager aligns them. */
export const unaligned: TopologyHint = { nodes: undefined, preferred: false };

/** A request for a resource, in terms of NUMA nodes. */
export interface NodeDemand {
  /** Numbers of the nodes that have the resource, in ascending order. */
  readonly ids: readonly number[];
  /** True if these nodes could satisfy the request while nothing uses them. */
  readonly couldSatisfy: (nodes: NumaNodes) => boolean;
  /** True if they can satisfy it now. */
  readonly satisfies: (nodes: NumaNodes) => boolean;
}

/** Number of nodes above which a resource is not aligned: there are 2ⁿ sets of n nodes. */
export const maxNodesOfHints = 16;

/** Hints for each set of nodes that can satisfy a request. Preferred are those of as few nodes as could satisfy it on an idle machine.
 *  @returns undefined, which means any nodes, for a resource of too many nodes.
 *  (kubelet, GetTopologyHints of the managers of CPUs and devices) */
export function hintsFor({ ids, couldSatisfy, satisfies }: NodeDemand): readonly NodesHint[] | undefined {
  if (ids.length > maxNodesOfHints) return undefined;
  const sets = [...nodeSets(ids)];
  const fewest = fewestNodes({ ids, couldSatisfy });
  return sets.filter(satisfies).map((nodes) => ({ nodes, preferred: countNodes(nodes) === fewest }));
}

/** Number of nodes that could satisfy a request while nothing uses them; the number of all nodes if they could not. */
export function fewestNodes({ ids, couldSatisfy }: Pick<NodeDemand, "ids" | "couldSatisfy">): number {
  for (const nodes of nodeSets(ids)) if (couldSatisfy(nodes)) return countNodes(nodes);
  return ids.length;
}
