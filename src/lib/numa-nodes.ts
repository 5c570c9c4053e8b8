/** A set of NUMA nodes: bit n is set if node n belongs to it. */
export type NumaNodes = bigint;

/** The highest number of a NUMA node that a set may contain, as in the kubelet. */
export const maxNumaNode = 63;

/** The set of these nodes. Numbers outside 0 to `maxNumaNode` are ignored. */
export function numaNodes(ids: Iterable<number>): NumaNodes {
  let nodes = 0n;
  for (const id of ids) if (id >= 0 && id <= maxNumaNode) nodes |= 1n << BigInt(id);
  return nodes;
}

/** Numbers of the nodes of a set, in ascending order. */
export function idsOfNodes(nodes: NumaNodes): readonly number[] {
  const ids: number[] = [];
  for (let id = 0, rest = nodes; rest > 0n; id += 1, rest >>= 1n) if (rest & 1n) ids.push(id);
  return ids;
}

/** Number of nodes in a set. */
export function countNodes(nodes: NumaNodes): number {
  let count = 0;
  for (let rest = nodes; rest > 0n; rest &= rest - 1n) count += 1;
  return count;
}

export function hasNode(nodes: NumaNodes, id: number): boolean {
  return id >= 0 && id <= maxNumaNode && (nodes & (1n << BigInt(id))) !== 0n;
}

/** True if a set has fewer nodes than another; of equally large sets, the one with the lower numbers counts as narrower. */
export function isNarrower(nodes: NumaNodes, than: NumaNodes): boolean {
  const [own, other] = [countNodes(nodes), countNodes(than)];
  return own === other ? nodes < than : own < other;
}

/** All sets of these nodes except the empty one: small sets first, and sets of equal size in the order of their nodes. There are 2ⁿ
 *  − 1 of them. */
export function* nodeSets(ids: readonly number[]): Generator<NumaNodes> {
  for (let size = 1; size <= ids.length; size += 1) yield* setsOfSize(ids, size);
}

function* setsOfSize(ids: readonly number[], size: number): Generator<NumaNodes> {
  if (size === 0) yield 0n;
  for (const [at, id] of ids.entries()) {
    if (size === 0 || ids.length - at < size) return;
    for (const rest of setsOfSize(ids.slice(at + 1), size - 1)) yield numaNodes([id]) | rest;
  }
}
