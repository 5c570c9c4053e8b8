import { countNodes, isNarrower } from "../lib/numa-nodes.ts";
import type { TopologyHint, TopologyHints } from "../topology-hints.ts";
import { hintLists, mergeHints } from "./merge.ts";
import { type NumaTopology, allNodes, isCloser } from "./numa.ts";

/** Policies that align, by the names of KubeletConfiguration.topologyManagerPolicy. */
export type AligningPolicy = "best-effort" | "restricted" | "single-numa-node";

export interface PolicySettings {
  readonly policy: AligningPolicy;
  /** prefer-closest-numa-nodes */
  readonly preferClosest: boolean;
}

export interface MergedHint {
  /** The resulting hint. */
  readonly hint: TopologyHint;
  readonly admit: boolean;
}

/** Merges the hints of all providers, and decides whether they may be allocated. Pure.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/#topology-manager-policies */
export function mergeByPolicy(
  { policy, preferClosest }: PolicySettings,
  numa: NumaTopology,
  ofProviders: readonly TopologyHints[],
): MergedHint {
  const [lists, all] = [hintLists(ofProviders), allNodes(numa)];
  if (policy !== "single-numa-node") {
    const hint = mergeHints(lists, all, preferClosest ? isCloser(numa) : isNarrower);
    return { hint, admit: policy === "best-effort" || hint.preferred };
  }
  const single = lists.map((list) => list.filter(fitsOneNode));
  const { nodes, preferred } = mergeHints(single, all, isNarrower);
  // All nodes: nothing is to be aligned, or the machine has one node.
  return { hint: { nodes: nodes === all ? undefined : nodes, preferred }, admit: preferred };
}

function fitsOneNode({ nodes, preferred }: TopologyHint): boolean {
  return preferred && (nodes === undefined || countNodes(nodes) === 1);
}
