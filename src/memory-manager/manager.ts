import type { Clock } from "../lib/clock.ts";
import { createStateStore } from "../host/saved-state.ts";
import type { Logger } from "../lib/log.ts";
import { idsOfNodes, numaNodes } from "../lib/numa-nodes.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Pod } from "../objects.ts";
import { isPinned } from "../pod/pinned-resources.ts";
import { type PodAllocator, type ResourceManager, noAdditions } from "../resource-manager.ts";
import type { HostFs } from "../seams/host.ts";
import type { MemoryBlock } from "./machine-state.ts";
import { type MemoryMeasures, createMemoryAllocator } from "./pod-allocator.ts";
import { writeMemoryState } from "./state-file.ts";
import { type MemoryState, releaseEndedInit, releasePod } from "./static-policy.ts";

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

export interface MemoryManager extends ResourceManager {
  /** Memory of a container; empty if no memory is allocated to it. */
  memoryOf(uid: string, container: string): readonly MemoryBlock[];
  /** Memory that can be allocated to containers, by NUMA node and type. */
  allocatableMemory(): readonly MemoryBlock[];
}

/** Interval for saving an unsaved state and for releasing memory of pods that ended while graftlet did not run, milliseconds. */
const reconcileMs = 10_000;

/** Memory manager with the policy Static: each container of a Guaranteed pod gets its memory on as few NUMA nodes as possible, and
 *  cannot use memory of other nodes. @see https://kubernetes.io/docs/tasks/administer-cluster/memory-manager/ */
export function createMemoryManager(deps: MemoryManagerDeps): MemoryManager {
  const { fs, rootDir, measures, clock, log } = deps;
  const memory = { state: deps.state };
  const store = createStateStore(clock, (signal) => writeMemoryState(fs, rootDir, memory.state, signal));
  const save = () =>
    store.save().catch((err: unknown) => log.warn({ err }, "cannot save the state of the memory manager; retrying"));
  /** Replaces the state, and saves it unless it is the same. */
  const change = (next: MemoryState) => {
    if (next === memory.state) return;
    memory.state = next;
    void save();
  };
  const releaseUnknown = () => {
    if (!deps.allSourcesReady()) return;
    const unknown = [...memory.state.assigned.keys()].filter((uid) => !deps.isKnown(uid));
    change(unknown.reduce(releasePod, memory.state));
  };
  const reconciling = runPeriodically({ ...deps, name: "memory-manager", intervalMs: reconcileMs }, async () => {
    releaseUnknown();
    if (store.isUnsaved()) await store.save();
  });
  const podAllocator = (pod: Pod): PodAllocator => {
    releaseUnknown();
    return createMemoryAllocator({ memory, measures, save }, pod);
  };
  const memoryOf = (uid: string, container: string) => memory.state.assigned.get(uid)?.get(container) ?? [];
  return {
    name: "memory",
    runnables: [reconciling],
    podAllocator: async (pod) => (isPinned(pod, deps.podLevel) ? podAllocator(pod) : undefined),
    allocatable: () => ({}),
    async prepareContainer(pod, { name }) {
      change(releaseEndedInit(memory.state, pod, name));
      const nodes = memoryOf(pod.metadata.uid, name).reduce((all, block) => all | block.nodes, 0n);
      return nodes === 0n ? undefined : { ...noAdditions, mems: idsOfNodes(nodes).join(",") };
    },
    release: (uid) => change(releasePod(memory.state, uid)),
    memoryOf,
    allocatableMemory: () =>
      [...memory.state.machine].flatMap(([id, { tables }]) =>
        [...tables].flatMap(([type, { allocatable: bytes }]) =>
          bytes > 0 ? [{ nodes: numaNodes([id]), type, bytes }] : [],
        ),
      ),
  };
}
