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
import { cpuHints } from "./hints.ts";
import { createPodAssigner } from "./pod-assigner.ts";
import {
  type Assignments,
  type StaticPolicy,
  SmtAlignmentError,
  exclusiveCpuCount,
  podCpuCount,
} from "./static-policy.ts";
import { sharesCache } from "./topology.ts";

/** Records assignments of exclusive CPUs. */
export interface CpuMeasures {
  /** The node has the static policy. */
  enabled(): void;
  /** A container's exclusive CPUs are requested, at each admission of its pod. */
  requested(): void;
  /** They could not be assigned to a container, or to a pod with pod-level resources. @param wholeCores the policy only assigns whole cores. */
  failed(source: AssignmentSource, wholeCores: boolean): void;
  /** A container has got CPUs. */
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

/** Allocates exclusive CPUs to the containers of a pod. Nothing is assigned to a pod before its allocation is committed. */
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
