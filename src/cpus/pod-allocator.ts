import type { CpuSet } from "../lib/cpu-set.ts";
import { messageOf } from "../lib/errors.ts";
import type { Container, Pod } from "../objects.ts";
import type { Rejection } from "../pipeline.ts";
import {
  type AssignmentKind,
  type AssignmentSource,
  type PodAllocator,
  unexpectedAdmission,
} from "../resource-manager.ts";
import { createPodAssigner, type PodAssigner } from "./pod-assigner.ts";
import {
  type Assignments,
  type StaticPolicy,
  SmtAlignmentError,
  exclusiveCpuCount,
  podCpuCount,
} from "./static-policy.ts";
import { sharesCache, type CpuTopology } from "./topology.ts";
import { type NumaNodes, countNodes, hasNode, numaNodes } from "../lib/numa-nodes.ts";
import { wholePod } from "../pod/pinned-resources.ts";
import { type TopologyHint, type TopologyHints, fewestNodes, hintsFor } from "../topology-hints.ts";

/** Records assignments of exclusive CPUs. */
export interface CpuMeasures {
  /** The node has the static policy. */
  enabled(): void;
  /** A container's exclusive CPUs are requested, at each admission of its pod. */
  requested(): void;
  /** Exclusive CPUs could not be assigned to a container, or to a pod with pod-level resources. @param wholeCores true if the policy
   *  only assigns whole cores. */
  failed(source: AssignmentSource, wholeCores: boolean): void;
  /** CPUs were assigned to a container. */
  assigned(kind: AssignmentKind): void;
  wholeCores(): void;
  /** Newly assigned CPUs share an L3 cache. */
  sharedCache(): void;
}

export interface CpuAllocatorDeps {
  readonly policy: StaticPolicy;
  /** CPUs of all pods; not changed by the allocation. */
  readonly assigned: Assignments;
  readonly measures: CpuMeasures;
  /** Records the exclusive CPUs of the pod's containers. */
  readonly commit: (own: ReadonlyMap<string, CpuSet>) => Promise<void>;
}

/** Allocates exclusive CPUs to the containers of a pod. The assignments take effect when they are committed. */
export function createCpuAllocator({ policy, assigned, measures, commit }: CpuAllocatorDeps, pod: Pod): PodAllocator {
  const { fullCores } = policy.options;
  const assigner = createPodAssigner(policy, assigned, pod);
  const assign: PodAllocator["allocate"] = async (container, { nodes }) => {
    if (exclusiveCpuCount(pod, container) === 0) return undefined;
    measures.requested();
    const had = assigner.own.has(container.name);
    try {
      const cpus = assigner.assign(container, nodes);
      if (fullCores) measures.wholeCores();
      if (!had && cpus && sharesCache(policy.topology, cpus)) measures.sharedCache();
      if (!had) measures.assigned("node_exclusive");
      return undefined;
    } catch (error) {
      measures.failed("node", fullCores);
      return rejectionOf(error);
    }
  };
  const allocatePod: PodAllocator["allocatePod"] = async ({ nodes }) => {
    const { initContainers = [], containers } = pod.spec;
    const exclusive = [...initContainers, ...containers].map((container) => exclusiveCpuCount(pod, container) > 0);
    try {
      const refused = podCpuCount(pod) > 0 ? assigner.emptySharedPool() : undefined;
      const cpus = refused ? undefined : assigner.assignWhole(nodes);
      if (refused) measures.failed("pod", false);
      if (!cpus) return refused;
      for (const isExclusive of exclusive) {
        if (isExclusive) measures.requested();
        measures.assigned(isExclusive ? "pod_exclusive" : "pod_shared");
      }
      if (sharesCache(policy.topology, cpus)) measures.sharedCache();
      return undefined;
    } catch (error) {
      measures.failed("pod", false);
      return rejectionOf(error);
    }
  };
  return {
    hints: (container: Container | undefined) => cpuHints({ policy, assigner, pod }, container),
    allocate: assign,
    allocatePod,
    commit: () => commit(assigner.own),
  };
}

function rejectionOf(error: unknown): Rejection {
  return error instanceof SmtAlignmentError
    ? { reason: "SMTAlignmentError", message: messageOf(error) }
    : unexpectedAdmission(error);
}

/** A pod that is being assigned CPUs. */
interface CpuHintInput {
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
  /** CPUs of init containers, or already assigned ones, that are used in addition to `available`: a hint must include their nodes. */
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
