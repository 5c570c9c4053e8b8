import type { Pod } from "../objects.ts";
import { ownRequests } from "../pod/pinned-resources.ts";
import {
  type AssignmentKind,
  type AssignmentSource,
  type PodAllocator,
  unexpectedAdmission,
} from "../resource-manager.ts";
import { type MemoryState, allocateMemory, allocatePodMemory, emptyPodMemory, topologyHints } from "./static-policy.ts";

/** Records allocations of memory on NUMA nodes. */
export interface MemoryMeasures {
  /** A container's memory is requested, at each admission of its pod. */
  requested(): void;
  /** Memory could not be allocated to a container, or to a pod with pod-level resources. */
  failed(source: AssignmentSource): void;
  /** Memory was allocated to a container. @param types number of types of memory. */
  assigned(kind: AssignmentKind, types: number): void;
}

export interface MemoryAllocatorDeps {
  /** The memory of all pods, which changes with each allocation. */
  readonly memory: { state: MemoryState };
  readonly measures: MemoryMeasures;
  readonly save: () => Promise<void>;
}

/** Allocates memory to the containers of a pod that `isPinned`. */
export function createMemoryAllocator({ memory, measures, save }: MemoryAllocatorDeps, pod: Pod): PodAllocator {
  const before = memory.state;
  return {
    hints(container) {
      try {
        return topologyHints(memory.state, pod, container);
      } catch {
        // The allocation then fails for the same reason, and reports it.
        return new Map();
      }
    },
    async allocate(container, hint) {
      measures.requested();
      try {
        const next = allocateMemory(memory.state, pod, container, hint);
        const blocks = next.assigned.get(pod.metadata.uid)?.get(container.name) ?? [];
        if (next !== memory.state) measures.assigned("node_exclusive", blocks.length);
        memory.state = next;
        return undefined;
      } catch (error) {
        measures.failed("node");
        return unexpectedAdmission(error);
      }
    },
    async allocatePod(hint) {
      measures.requested();
      try {
        const empty = emptyPodMemory(pod);
        if (empty) measures.failed("pod");
        if (empty) return empty;
        const next = allocatePodMemory(memory.state, pod, hint);
        if (next !== memory.state) countAssignments(measures, pod);
        memory.state = next;
        return undefined;
      } catch (error) {
        measures.failed("pod");
        return unexpectedAdmission(error);
      }
    },
    async commit() {
      // As in the kubelet, a pod starts even if its record cannot be saved: after a restart its memory may be on other nodes.
      if (memory.state !== before) await save();
    },
  };
}

/** Counts the containers of a pod with pod-level resources by kind of assignment. */
function countAssignments(measures: MemoryMeasures, pod: Pod): void {
  const { initContainers = [], containers } = pod.spec;
  for (const container of [...initContainers, ...containers]) {
    const isOwn = Object.keys(ownRequests(pod, container)).length > 0;
    if (isOwn || initContainers.includes(container)) measures.requested();
    measures.assigned(isOwn ? "pod_exclusive" : "pod_shared", 1);
  }
}
