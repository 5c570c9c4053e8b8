import { countNodes, isNarrower, type NumaNodes } from "../lib/numa-nodes.ts";
import type { TopologyHint, TopologyHints } from "../topology-hints.ts";
import { type NumaTopology, allNodes, isCloser, type IsBetter } from "./numa.ts";

/** Policies that align, by the names of KubeletConfiguration.topologyManagerPolicy. */
export type AligningPolicy = "best-effort" | "restricted" | "single-numa-node";

export interface PolicySettings {
  readonly policy: AligningPolicy;
  /** prefer-closest-numa-nodes */
  readonly preferClosest: boolean;
}

export interface MergedHint {
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
  // A hint for all nodes means that nothing needs alignment, or that the machine has a single node: any nodes will do.
  return { hint: { nodes: nodes === all ? undefined : nodes, preferred }, admit: preferred };
}

function fitsOneNode({ nodes, preferred }: TopologyHint): boolean {
  return preferred && (nodes === undefined || countNodes(nodes) === 1);
}

/** Hints of one resource; each placement of a pod uses one of them. */
export type HintList = readonly TopologyHint[];

/** One list for each resource of all providers. A provider without hints, and a resource without a list, may be placed anywhere; one with
 *  an empty list cannot be placed at all. */
function hintLists(ofProviders: readonly TopologyHints[]): readonly HintList[] {
  const anywhere = (preferred: boolean): HintList => [{ nodes: undefined, preferred }];
  return ofProviders.flatMap((hints): readonly HintList[] => {
    if (hints.size === 0) return [anywhere(true)];
    return [...hints.values()].map((list) =>
      list === undefined ? anywhere(true) : list.length > 0 ? list : anywhere(false),
    );
  });
}

/** Combines hints, one of each list, into the nodes that they have in common. A combination is preferred if all of its hints are preferred
 *  and name the same nodes. The best preferred combination is chosen; if there is none, the one whose number of nodes is closest to what
 *  the most demanding resource needs.
 *  @returns all nodes, not preferred, if no combination has a node in common. (kubelet, cm/topologymanager/policy.go) */
export function mergeHints(lists: readonly HintList[], all: NumaNodes, isBetter: IsBetter): TopologyHint {
  const preferred = bestOf(commonPreferred(lists, all), isBetter);
  if (preferred !== undefined) return { nodes: preferred, preferred: true };
  const needed = mostNeeded(lists);
  const nearest = bestOf(commonNodes(lists, all), (a, b) => isNearer(a, b, needed) ?? isBetter(a, b));
  return { nodes: nearest ?? all, preferred: false };
}

function commonPreferred(lists: readonly HintList[], all: NumaNodes): Iterable<NumaNodes> {
  let common = new Set<NumaNodes | undefined>([undefined]);
  for (const list of lists) {
    const next = new Set<NumaNodes | undefined>();
    for (const { nodes } of list.filter((hint) => hint.preferred)) {
      if (nodes === undefined) for (const before of common) next.add(before);
      else if (common.has(undefined) || common.has(nodes)) next.add(nodes);
    }
    common = next;
  }
  return [...common].map((nodes) => (nodes ?? all) & all);
}

/** Nodes of all combinations. Equal results are merged list by list, so there are at most as many as sets of nodes, while the number of
 *  combinations is the product of the lists' lengths. */
function commonNodes(lists: readonly HintList[], all: NumaNodes): Iterable<NumaNodes> {
  let common = new Set([all]);
  for (const list of lists) {
    const next = new Set<NumaNodes>();
    for (const { nodes = all } of list) for (const before of common) next.add(before & nodes);
    common = next;
  }
  return common;
}

/** The best set that is not empty. */
function bestOf(sets: Iterable<NumaNodes>, isBetter: IsBetter): NumaNodes | undefined {
  let best: NumaNodes | undefined;
  for (const nodes of sets) if (nodes !== 0n && (best === undefined || isBetter(nodes, best))) best = nodes;
  return best;
}

/** Minimum number of nodes that the most demanding resource needs. */
function mostNeeded(lists: readonly HintList[]): number {
  const narrowest = lists.map((list) =>
    bestOf(
      list.flatMap(({ nodes }) => (nodes === undefined ? [] : [nodes])),
      isNarrower,
    ),
  );
  return Math.max(0, ...narrowest.map((nodes) => countNodes(nodes ?? 0n)));
}

/** Compares numbers of nodes: the required number is best, then fewer (as many as possible), then more. @returns undefined if they are
 *  equal. */
function isNearer(nodes: NumaNodes, than: NumaNodes, needed: number): boolean | undefined {
  const [own, other] = [countNodes(nodes), countNodes(than)];
  if (own === other) return undefined;
  if (own > needed) return other > own;
  return other > needed || own > other;
}
