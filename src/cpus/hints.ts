import type { CpuSet } from "../lib/cpu-set.ts";
import { type NumaNodes, countNodes, hasNode, numaNodes } from "../lib/numa-nodes.ts";
import type { Container, Pod } from "../objects.ts";
import { wholePod } from "../pod/pinned-resources.ts";
import { type TopologyHint, type TopologyHints, fewestNodes, hintsFor } from "../topology-hints.ts";
import type { PodAssigner } from "./pod-assigner.ts";
import { type StaticPolicy, exclusiveCpuCount, podCpuCount } from "./static-policy.ts";
import type { CpuTopology } from "./topology.ts";

/** A pod that is being assigned CPUs. */
export interface CpuHintInput {
  readonly policy: StaticPolicy;
  readonly assigner: Pick<PodAssigner, "own" | "free" | "reusable" | "emptySharedPool">;
  readonly pod: Pod;
}

/** Returns hints for the exclusive CPUs of a container, or of its pod as a whole; none without exclusive CPUs. If the number of assigned
 *  CPUs differs from the request, no hint can satisfy it. (kubelet, cm/cpumanager/policy_static.go) @param container undefined for the
 *  pod. */
export function cpuHints(input: CpuHintInput, container: Container | undefined): TopologyHints {
  const hints = container ? containerHints(input, container) : podHints(input);
  return hints ? new Map([["cpu", hints]]) : new Map();
}

function containerHints({ policy, assigner, pod }: CpuHintInput, container: Container) {
  const count = exclusiveCpuCount(pod, container);
  if (count === 0) return undefined;
  const has = assigner.own.get(container.name);
  if (has) return has.size === count ? hintsOf(policy, { available: has, required: new Set(), count }) : [];
  return hintsOf(policy, { available: assigner.free(), required: assigner.reusable(), count });
}

function podHints({ policy, assigner, pod }: CpuHintInput) {
  const count = podCpuCount(pod);
  if (count === 0) return undefined;
  const whole = assigner.own.get(wholePod);
  if (whole) return whole.size === count ? hintsOf(policy, { available: whole, required: new Set(), count }) : [];
  if (assigner.emptySharedPool()) return [];
  const containers = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  const changed = containers.some((container) => {
    const has = assigner.own.get(container.name);
    return has !== undefined && has.size !== exclusiveCpuCount(pod, container);
  });
  if (changed) return [];
  const own: CpuSet = new Set([...assigner.own.values()].flatMap((cpus) => [...cpus]));
  if (own.size === count) return hintsOf(policy, { available: own, required: new Set(), count });
  return hintsOf(policy, { available: assigner.free(), required: assigner.reusable().union(own), count });
}

interface CpuDemand {
  readonly available: CpuSet;
  /** Additional CPUs, whose nodes must be part of a hint. */
  readonly required: CpuSet;
  readonly count: number;
}

function hintsOf({ topology, options }: StaticPolicy, { available, required, count }: CpuDemand) {
  const ids = [...new Set(topology.cpus.map(({ numaNode }) => numaNode))].sort((a, b) => a - b);
  const requiredNodes = numaNodes(topology.cpus.filter(({ id }) => required.has(id)).map(({ numaNode }) => numaNode));
  const [all, free] = [cpusByNode(topology, topology.ids), cpusByNode(topology, available)];
  const couldSatisfy = (nodes: NumaNodes) => sumOf(all, nodes) >= count;
  const hints = hintsFor({
    ids,
    couldSatisfy,
    satisfies: (nodes) => (requiredNodes & ~nodes) === 0n && required.size + sumOf(free, nodes) >= count,
  });
  if (!options.alignBySocket || !hints) return hints;
  const fewest = fewestNodes({ ids, couldSatisfy });
  return hints.map((hint): TopologyHint => {
    return { ...hint, preferred: hint.preferred || spansFewestSockets(topology, hint, fewest) };
  });
}

/** With align-by-socket a hint is also preferred if its nodes belong to as few sockets as could satisfy the request. */
function spansFewestSockets({ cpus, count }: CpuTopology, { nodes = 0n }: TopologyHint, fewestNodes: number): boolean {
  const perSocket = Math.trunc(count.numaNode / count.socket);
  if (perSocket === 0 || countNodes(nodes) === 0) return false;
  const sockets = new Set(cpus.filter(({ numaNode }) => hasNode(nodes, numaNode)).map(({ socket }) => socket));
  return sockets.size === Math.ceil(fewestNodes / perSocket);
}

function cpusByNode(topology: CpuTopology, ids: CpuSet): ReadonlyMap<number, number> {
  const groups = Map.groupBy(topology.cpus, ({ numaNode }) => numaNode);
  return new Map([...groups].map(([node, cpus]) => [node, cpus.filter(({ id }) => ids.has(id)).length]));
}

function sumOf(byNode: ReadonlyMap<number, number>, nodes: NumaNodes): number {
  return [...byNode].reduce((sum, [node, count]) => (hasNode(nodes, node) ? sum + count : sum), 0);
}
