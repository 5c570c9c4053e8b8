import { type NumaNodes, countNodes, idsOfNodes, isNarrower } from "../lib/numa-nodes.ts";
import { type NodesHint, type TopologyHint, hintsFor } from "../topology-hints.ts";
import { type MachineState, sumOver } from "./machine-state.ts";

/** Requested bytes by type: `memory`, or huge pages such as `hugepages-2Mi`. */
export type MemoryRequest = ReadonlyMap<string, number>;

/** Bytes of a type that a pod's containers can reuse on exactly these nodes. */
export type ReusableMemory = (nodes: NumaNodes, type: string) => number;

/** Returns sets of NUMA nodes that can satisfy a request. The sets with as few nodes as an idle machine would need are preferred. A node
 *  whose memory is used alone is in no set with others; a node whose memory is used together with others is only in that set.
 *  (kubelet, cm/memorymanager/policy_static.go) */
export function memoryHints(
  machine: MachineState,
  request: MemoryRequest,
  reusable: ReusableMemory,
): readonly NodesHint[] {
  const fits = (enough: (type: string) => number) => [...request].every(([type, bytes]) => enough(type) >= bytes);
  const hints = hintsFor({
    ids: [...machine.keys()].sort((a, b) => a - b),
    couldSatisfy: (nodes) => fits((type) => sumOver(machine, nodes, type, "allocatable")),
    satisfies: (nodes) =>
      isUsable(machine, nodes) && fits((type) => sumOver(machine, nodes, type, "free") + reusable(nodes, type)),
  });
  return hints ?? [];
}

/** True unless a node of the set is used alone, or as part of another set; a single node may be used alone. */
function isUsable(machine: MachineState, nodes: NumaNodes): boolean {
  const [only, ...others] = idsOfNodes(nodes);
  if (only !== undefined && others.length === 0) return countNodes(machine.get(only)?.group ?? 0n) <= 1;
  return !breaksGroup(machine, nodes);
}

/** Chooses the nodes for a request: the nodes of the hint if they have enough memory, otherwise the best set that contains them. @throws
 *  Error in the kubelet's words. */
export function chooseNodes(
  machine: MachineState,
  request: MemoryRequest,
  reusable: ReusableMemory,
  hint: TopologyHint,
): NumaNodes {
  const aligned = hint.nodes === undefined ? defaultHint(machine, request, reusable) : { ...hint, nodes: hint.nodes };
  if (!aligned.preferred && hint.preferred)
    throw new Error("[memorymanager] failed to find the default preferred hint");
  const isEnough = [...request].every(([type, bytes]) => sumOver(machine, aligned.nodes, type, "free") >= bytes);
  const chosen = isEnough ? aligned : extendedHint(machine, request, reusable, aligned.nodes);
  if (!chosen.preferred && aligned.preferred)
    throw new Error("[memorymanager] failed to find the extended preferred hint");
  if (breaksGroup(machine, chosen.nodes))
    throw new Error("[memorymanager] preferred hint violates NUMA node allocation");
  return chosen.nodes;
}

function defaultHint(machine: MachineState, request: MemoryRequest, reusable: ReusableMemory): NodesHint {
  const best = bestOf(memoryHints(machine, request, reusable));
  if (best) return best;
  throw new Error(
    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
  );
}

/** A topology manager may name only some of the nodes of a hint. */
function extendedHint(
  machine: MachineState,
  request: MemoryRequest,
  reusable: ReusableMemory,
  nodes: NumaNodes,
): NodesHint {
  const best = bestOf(memoryHints(machine, request, reusable).filter((hint) => (hint.nodes & nodes) === nodes));
  if (best) return best;
  throw new Error("[memorymanager] failed to find NUMA nodes to extend the current topology hint");
}

/** The preferred hint with the fewest nodes; if none is preferred, the hint with the fewest nodes. */
function bestOf(hints: readonly NodesHint[]): NodesHint | undefined {
  return hints.reduce<NodesHint | undefined>((best, hint) => {
    if (!best || hint.preferred !== best.preferred) return !best || hint.preferred ? hint : best;
    return isNarrower(hint.nodes, best.nodes) ? hint : best;
  }, undefined);
}

/** True if several nodes are not the group that each of them already belongs to. */
function breaksGroup(machine: MachineState, nodes: NumaNodes): boolean {
  const ids = idsOfNodes(nodes);
  if (ids.length === 1) return false;
  return ids.some((id) => {
    const node = machine.get(id);
    return node !== undefined && node.assignments > 0 && node.group !== nodes;
  });
}
