import type { Clock } from "../lib/clock.ts";
import { createStateStore } from "../host/saved-state.ts";
import type { Logger } from "../lib/log.ts";
import { idsOfNodes, numaNodes } from "../lib/numa-nodes.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Pod } from "../objects.ts";
import { isPinned, ownRequests } from "../pod/pinned-resources.ts";
import {
  type AssignmentKind,
  type AssignmentSource,
  type PodAllocator,
  type ResourceManager,
  allocateContainers,
  noAdditions,
  unexpectedAdmission,
} from "../resource-manager.ts";
import type { HostFs } from "../seams/host.ts";
import type { MemoryBlock } from "./machine-state.ts";
import { writeState } from "./state-file.ts";
import {
  type MemoryState,
  allocateMemory,
  allocatePodMemory,
  emptyPodMemory,
  releaseEndedInit,
  releasePod,
  topologyHints,
} from "./static-policy.ts";

export interface MemoryManagerDeps {
  readonly fs: Pick<HostFs, "apply">;
  /** The kubelet's root directory on the target. */
  readonly rootDir: string;
  /** The target's memory, with allocations from before a restart. */
  readonly state: MemoryState;
  /** Feature gate PodLevelResourceManagers. */
  readonly podLevel: boolean;
  readonly measures: MemoryMeasures;
  /** True once every source has listed its pods. */
  readonly allSourcesReady: () => boolean;
  /** True while a source wants the pod or a worker handles it. */
  readonly isKnown: (uid: string) => boolean;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Records allocations of memory on NUMA nodes. */
export interface MemoryMeasures {
  /** Memory of a container is requested, at each admission of its pod. */
  requested(): void;
  /** It could not be allocated to a container, or to a pod with pod-level resources. */
  failed(source: AssignmentSource): void;
  /** A container has got memory. @param types number of types of memory. */
  assigned(kind: AssignmentKind, types: number): void;
}

export interface MemoryManager extends ResourceManager {
  /** Memory of a container; empty if no memory is allocated to it. */
  memoryOf(uid: string, container: string): readonly MemoryBlock[];
  /** Memory that can be allocated to containers, by NUMA node and type. */
  allocatableMemory(): readonly MemoryBlock[];
}

/** Interval at which unsaved states are saved, and memory of pods is released that ended while graftlet did not run, milliseconds. */
const reconcileMs = 10_000;

/** Memory manager with the policy Static: each container of a Guaranteed pod gets its memory on as few NUMA nodes as possible, and uses no
 *  memory of others. @see https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/ */
export function createMemoryManager(deps: MemoryManagerDeps): MemoryManager {
  const { fs, rootDir, measures, clock, log } = deps;
  let state = deps.state;
  const store = createStateStore(clock, (signal) => writeState(fs, rootDir, state, signal));
  const save = () =>
    store.save().catch((err: unknown) => log.warn({ err }, "cannot save the state of the memory manager; retrying"));
  /** Replaces the state, and saves it unless it is the same. */
  const change = (next: MemoryState) => {
    if (next === state) return;
    state = next;
    void save();
  };
  const releaseUnknown = () => {
    if (!deps.allSourcesReady()) return;
    const unknown = [...state.assigned.keys()].filter((uid) => !deps.isKnown(uid));
    change(unknown.reduce(releasePod, state));
  };
  const reconciling = runPeriodically({ ...deps, name: "memory-manager", intervalMs: reconcileMs }, async () => {
    releaseUnknown();
    if (store.isUnsaved()) await store.save();
  });
  const countAssignments = (pod: Pod) => {
    const { initContainers = [], containers } = pod.spec;
    for (const container of [...initContainers, ...containers]) {
      const isOwn = Object.keys(ownRequests(pod, container)).length > 0;
      if (isOwn || initContainers.includes(container)) measures.requested();
      measures.assigned(isOwn ? "pod_exclusive" : "pod_shared", 1);
    }
  };
  const podAllocator = (pod: Pod): PodAllocator => {
    releaseUnknown();
    const before = state;
    return {
      hints(container) {
        try {
          return topologyHints(state, pod, container);
        } catch {
          // The allocation fails for the same reason, and says it.
          return new Map();
        }
      },
      async allocate(container, hint) {
        measures.requested();
        try {
          const next = allocateMemory(state, pod, container, hint);
          const blocks = next.assigned.get(pod.metadata.uid)?.get(container.name) ?? [];
          if (next !== state) measures.assigned("node_exclusive", blocks.length);
          state = next;
          return undefined;
        } catch (error) {
          measures.failed("node");
          return unexpectedAdmission(error);
        }
      },
      async allocatePod(hint) {
        measures.requested();
        const empty = emptyPodMemory(pod);
        if (empty) measures.failed("pod");
        if (empty) return empty;
        try {
          const next = allocatePodMemory(state, pod, hint);
          if (next !== state) countAssignments(pod);
          state = next;
          return undefined;
        } catch (error) {
          measures.failed("pod");
          return unexpectedAdmission(error);
        }
      },
      async commit() {
        // A pod whose record cannot be saved starts nevertheless, as in a kubelet: after a restart its memory may be on other nodes.
        if (state !== before) await save();
      },
    };
  };
  const memoryOf = (uid: string, container: string) => state.assigned.get(uid)?.get(container) ?? [];
  return {
    name: "memory",
    services: [reconciling],
    async allocate(pod) {
      return isPinned(pod, deps.podLevel) ? allocateContainers(podAllocator(pod), pod) : undefined;
    },
    podAllocator: async (pod) => (isPinned(pod, deps.podLevel) ? podAllocator(pod) : undefined),
    allocatable: () => ({}),
    async prepareContainer(pod, { name }) {
      change(releaseEndedInit(state, pod, name));
      const nodes = memoryOf(pod.metadata.uid, name).reduce((all, block) => all | block.nodes, 0n);
      return nodes === 0n ? undefined : { ...noAdditions, mems: idsOfNodes(nodes).join(",") };
    },
    release: (uid) => change(releasePod(state, uid)),
    memoryOf,
    allocatableMemory: () =>
      [...state.machine].flatMap(([id, { tables }]) =>
        [...tables].flatMap(([type, { allocatable: bytes }]) =>
          bytes > 0 ? [{ nodes: numaNodes([id]), type, bytes }] : [],
        ),
      ),
  };
}
