import type { CpuSet } from "../lib/cpu-set.ts";
import { type TakeOptions, nodeLevels, orderedParts, takeCpus } from "./take-cpus.ts";
import type { CpuTopology } from "./topology.ts";

/** A choice of NUMA nodes. */
interface Choice {
  readonly nodes: readonly number[];
  /** CPUs to take from each of these nodes. */
  readonly share: number;
  /** Nodes from which one more group of CPUs is taken; a node may be listed several times. */
  readonly remainder: readonly number[];
  /** Standard deviation of the free CPUs of all nodes after the request is satisfied. */
  readonly imbalance: number;
}

/** Takes CPUs in equal numbers from as few NUMA nodes as possible. If no nodes can share the request, takes CPUs like `takeCpus`.
 *  @param groupSize CPUs that are taken together: the threads of a core, or 1. @throws Error in the kubelet's words.
 *  @see https://github.com/kubernetes/enhancements/tree/master/keps/sig-node/2902-cpumanager-distribute-cpus-policy-option */
export function distributeCpus(
  topology: CpuTopology,
  available: CpuSet,
  count: number,
  { groupSize, ...options }: TakeOptions & { readonly groupSize: number },
): CpuSet {
  const packed = () => takeCpus(topology, available, count, { ...options, alignCaches: false });
  if (count === 0 || count % groupSize !== 0 || count > available.size) return packed();
  const choice = bestChoice(topology, available, count, groupSize);
  if (!choice) return packed();
  const left = new Set(available);
  const takeFrom = (node: number, size: number) => {
    const own = topology.cpus.filter(({ id, numaNode }) => numaNode === node && left.has(id)).map(({ id }) => id);
    for (const cpu of takeCpus(topology, new Set(own), size, { ...options, alignCaches: false })) left.delete(cpu);
  };
  for (const node of choice.nodes) takeFrom(node, choice.share);
  for (const node of choice.remainder) takeFrom(node, groupSize);
  return available.difference(left);
}

/** The most balanced choice of the fewest nodes. */
function bestChoice(topology: CpuTopology, available: CpuSet, count: number, groupSize: number): Choice | undefined {
  const free = topology.cpus.filter(({ id }) => available.has(id));
  const nodes = orderedParts(free, nodeLevels(topology));
  const freeOf = new Map(nodes.map((node) => [node, free.filter(({ numaNode }) => numaNode === node).length]));
  const groups = Math.ceil(count / groupSize);
  const groupsPerNode = Math.ceil(Math.ceil(topology.cpus.length / groupSize) / topology.count.numaNode);
  const fewest = Math.ceil(groups / groupsPerNode);
  for (let size = fewest; size <= Math.min(groups, nodes.length); size += 1) {
    let best: Choice | undefined;
    for (const chosen of combinations(nodes, size)) {
      const choice = choiceOf(freeOf, chosen, count, groupSize);
      if (choice && choice.imbalance < (best?.imbalance ?? Infinity)) best = choice;
      if (best?.imbalance === 0) break;
    }
    if (best) return best;
  }
  return undefined;
}

/** Distributes a request over these nodes: equal numbers of groups, and the remainder over as many nodes as possible.
 *  @returns undefined if they cannot satisfy it. */
function choiceOf(
  freeOf: ReadonlyMap<number, number>,
  nodes: readonly number[],
  count: number,
  groupSize: number,
): Choice | undefined {
  const share = Math.floor(count / nodes.length / groupSize) * groupSize;
  const groups = nodes.reduce((sum, node) => sum + Math.floor((freeOf.get(node) ?? 0) / groupSize), 0);
  if (groups * groupSize < count || nodes.some((node) => (freeOf.get(node) ?? 0) < share)) return undefined;
  const left = new Map([...freeOf].map(([node, free]) => [node, nodes.includes(node) ? free - share : free]));
  const rest = (count - share * nodes.length) / groupSize;
  if (rest === 0) return { nodes, share, remainder: [], imbalance: deviation([...left.values()]) };
  const able = nodes.filter((node) => (left.get(node) ?? 0) >= groupSize);
  let best: Choice | undefined;
  for (let size = able.length; size >= 1; size -= 1) {
    for (const subset of combinations(able, size)) {
      const choice = withRemainder(left, subset, rest, groupSize);
      if (choice && choice.imbalance < (best?.imbalance ?? Infinity)) best = { nodes, share, ...choice };
    }
  }
  return best;
}

/** Distributes groups of CPUs over nodes in turn. @param left free CPUs by node.
 *  @returns undefined if the nodes have too few. */
function withRemainder(
  left: ReadonlyMap<number, number>,
  nodes: readonly number[],
  groups: number,
  groupSize: number,
): Pick<Choice, "remainder" | "imbalance"> | undefined {
  const free = new Map(left);
  const remainder: number[] = [];
  while (remainder.length < groups) {
    const able = nodes.filter((node) => (free.get(node) ?? 0) >= groupSize).slice(0, groups - remainder.length);
    if (able.length === 0) return undefined;
    for (const node of able) free.set(node, (free.get(node) ?? 0) - groupSize);
    remainder.push(...able);
  }
  return { remainder, imbalance: deviation([...free.values()]) };
}

/** Subsets of a size, in the order of the items. */
function* combinations(items: readonly number[], size: number): Generator<readonly number[]> {
  if (size === 0) yield [];
  for (const [at, item] of items.entries()) {
    if (size === 0 || items.length - at < size) return;
    for (const rest of combinations(items.slice(at + 1), size - 1)) yield [item, ...rest];
  }
}

/** Standard deviation, with three decimals like the mean that it is calculated from. */
function deviation(values: readonly number[]): number {
  const round = (value: number) => Math.round(value * 1000) / 1000;
  const mean = round(values.reduce((sum, value) => sum + value, 0) / values.length);
  return round(Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length));
}
