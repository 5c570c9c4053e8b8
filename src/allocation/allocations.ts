import type { ContainerStatus } from "../gen/cri.ts";
import type { Pod, Resources } from "../objects.ts";
import type { PodCache } from "../pipeline.ts";
import { resourcesAnnotation } from "../pod/labels.ts";
import { containerNameOf, newestRun, isRunning } from "../pod/runs.ts";
import {
  type PodResources,
  effectiveResources,
  parseResourcesAnnotation,
  raiseToAtLeast,
  resourcesOf,
  withResources,
} from "../pod/pod-resources.ts";
import { type DesiredPod, type AllocatedPod, allocatedPod } from "../roles.ts";
import type { PrivateColumn } from "../state/records.ts";
import {
  type LoadedRecords,
  type ResourceRecord,
  type RecordStoreDeps,
  createRecordStore,
} from "./resource-records.ts";

export interface AllocationsDeps extends RecordStoreDeps {
  readonly podCache: Pick<PodCache, "get">;
  readonly privateColumn: PrivateColumn;
}

/** Allocated resources of pods, which may differ from their specs, and actuated resources. */
export type Allocations = ReturnType<typeof createAllocations>;

/** Allocated and actuated resources of a pod. */
export interface Allocation {
  readonly allocated: PodResources;
  readonly inForce: ReadonlyMap<string, Resources>;
  readonly wholeInForce: Resources | undefined;
  /** The allocation has changed since the containers were created, so their annotations are outdated. */
  readonly changed: boolean;
}

/** Creates the allocations. Containers are annotated with the resources that they were created with, so only pods whose resources have
 *  changed since are recorded, in a file in the root directory; for containers of a kubelet, its checkpoints are read. */
export function createAllocations(deps: AllocationsDeps) {
  const { records, get, entryOf, put, change } = createEntries(deps);
  const cached = new WeakMap<Allocation, { readonly desired: DesiredPod; readonly allocated: AllocatedPod }>();
  const actuatedResourcesOf = (pod: DesiredPod | AllocatedPod, entry: Allocation, status: ContainerStatus) =>
    entry.inForce.get(status.id) ?? actuatedSinceStart(pod, entry, status, records.kubeletCheckpoints());
  const running = (pod: DesiredPod | AllocatedPod, entry: Allocation) =>
    runsOf(deps, pod)
      .filter(isRunning)
      .map((run) => ({ run, resources: actuatedResourcesOf(pod, entry, run) }));
  const allocatedPodOf = (pod: DesiredPod): AllocatedPod => {
    const entry = get(pod.metadata.uid);
    if (!entry) return allocatedPod(pod);
    // Called for all pods on each admission.
    const last = cached.get(entry);
    if (last?.desired === pod) return last.allocated;
    const given = allocatedPod(withResources(pod, entry.allocated));
    cached.set(entry, { desired: pod, allocated: given });
    return given;
  };
  return {
    /** Records on the target, to be read before any pod is admitted. */
    records,
    /** The pod with its allocated resources in place of its requested ones; the same object if they are equal. */
    allocatedPod: allocatedPodOf,
    /** The allocated pod, with resources no lower than the actuated ones: a decrease frees resources only once it is actuated. */
    effectivePod(pod: DesiredPod): AllocatedPod {
      const given = allocatedPodOf(pod);
      const entry = get(pod.metadata.uid);
      return entry?.changed ? raisedToActuated(given, entry, running(given, entry)) : given;
    },
    /** True if the pod's allocation equals its request. */
    matchesRequest(pod: DesiredPod): boolean {
      // The same object if the allocation equals the request.
      const given: Pod = allocatedPodOf(pod);
      return given === pod;
    },
    /** Restores a pod's previous allocation, or allocates what it requests. */
    addPod: (pod: DesiredPod): void => void entryOf(pod),
    /** Allocates what a pod's spec requests, and checkpoints it. @throws if the target cannot be written to: the allocation is unchanged. */
    async allocate(pod: DesiredPod) {
      const before = entryOf(pod);
      // Running containers keep their resources until they are actuated.
      const inForce = new Map(running(pod, before).map(({ run, resources }) => [run.id, resources]));
      const wholeInForce = before.wholeInForce ?? before.allocated.pod ?? (pod.spec.resources && {});
      await put(pod, { allocated: resourcesOf(pod.spec), inForce, wholeInForce, changed: true });
    },
    /** Checkpoints a pod's allocation, before a different request is left pending. @throws like `allocate`. */
    async checkpoint(pod: DesiredPod) {
      const before = entryOf(pod);
      if (!before.changed) await put(pod, { ...before, changed: true });
    },
    containerResources: (pod: AllocatedPod, status: ContainerStatus) => actuatedResourcesOf(pod, entryOf(pod), status),
    podResources(pod: AllocatedPod) {
      const { wholeInForce, allocated } = entryOf(pod);
      return wholeInForce ?? allocated.pod;
    },
    setContainerResources: (uid: string, id: string, resources: Resources) =>
      change(uid, ({ inForce }) => ({ inForce: new Map(inForce).set(id, resources) })),
    setPodResources: (uid: string, wholeInForce: Resources) => change(uid, () => ({ wholeInForce })),
    /** Drops records of pods that have not been added and are not among these. */
    pruneRecords(known: ReadonlySet<string>) {
      for (const uid of records.uids()) if (!known.has(uid)) records.forget(uid);
    },
  };
}

/** Allocations by pod, and their records on the target. */
function createEntries(deps: AllocationsDeps) {
  const entries = deps.privateColumn<Allocation>();
  const records = createRecordStore(deps, () => recordsOf(entries.entries()));
  const entryOf = (pod: DesiredPod | AllocatedPod): Allocation => {
    const { uid } = pod.metadata;
    const known = entries.get(uid);
    if (known) return known;
    const made = restoreAllocation(pod, runsOf(deps, pod), records.claim(uid), records.kubeletCheckpoints());
    entries.set(uid, made);
    return made;
  };
  return {
    records,
    get: (uid: string) => entries.get(uid),
    /** The pod's allocation; restored or made if there is none yet. */
    entryOf,
    /** Replaces an allocation and checkpoints it. @throws if the target cannot be written to: the allocation is unchanged. */
    async put(pod: DesiredPod, entry: Allocation): Promise<void> {
      const { uid } = pod.metadata;
      const before = entryOf(pod);
      entries.set(uid, entry);
      try {
        await records.save();
      } catch (error) {
        entries.set(uid, before);
        throw error;
      }
    },
    change(uid: string, how: (entry: Allocation) => Partial<Allocation>): Promise<void> {
      const entry = entries.get(uid);
      if (entry) entries.set(uid, { ...entry, ...how(entry), changed: true });
      return records.save();
    },
  };
}

function runsOf({ podCache }: Pick<AllocationsDeps, "podCache">, { metadata }: DesiredPod | AllocatedPod) {
  return podCache.get(metadata.uid)?.containers ?? [];
}

/** The pod with resources no lower than the actuated ones. */
function raisedToActuated(
  allocated: AllocatedPod,
  { wholeInForce }: Allocation,
  running: readonly { readonly run: ContainerStatus; readonly resources: Resources }[],
): AllocatedPod {
  const inForce = new Map(running.map(({ run, resources }) => [containerNameOf(run), resources]));
  const { containers, pod: whole } = resourcesOf(allocated.spec);
  const raised = Object.entries(containers).map(
    ([name, own]) => [name, raiseToAtLeast(own, inForce.get(name))] as const,
  );
  const own = whole && raiseToAtLeast(whole, wholeInForce);
  return allocatedPod(withResources(allocated, { containers: Object.fromEntries(raised), ...(own && { pod: own }) }));
}

/** Actuated resources of a container that was not resized since its start: the resources that it was created with. */
function actuatedSinceStart(
  { metadata }: DesiredPod | AllocatedPod,
  { allocated, wholeInForce }: Allocation,
  run: ContainerStatus,
  checkpoints: LoadedRecords["kubelet"],
): Resources {
  const note = parseResourcesAnnotation(run.annotations[resourcesAnnotation]);
  if (note) return effectiveResources(note.own, note.whole);
  const name = containerNameOf(run);
  const known = checkpoints.inForce.get(metadata.uid)?.containers[name] ?? allocated.containers[name];
  return effectiveResources(known, wholeInForce ?? allocated.pod);
}

/** Allocation of a pod that is new to this process: from its record, from the resources that its containers were created with, or from a
 *  kubelet's checkpoint; otherwise its request. */
function restoreAllocation(
  { metadata: { uid }, spec }: DesiredPod | AllocatedPod,
  runs: readonly ContainerStatus[],
  record: ResourceRecord | undefined,
  checkpoints: LoadedRecords["kubelet"],
): Allocation {
  if (record) {
    const { allocated, inForce, wholeInForce } = record;
    return { allocated, inForce: new Map(Object.entries(inForce)), wholeInForce, changed: true };
  }
  const requested = resourcesOf(spec);
  const checkpointed = checkpoints.allocated.get(uid);
  const notes = new Map(Object.keys(requested.containers).map((name) => [name, annotatedResources(name, runs)]));
  const containers: Record<string, Resources> = {};
  for (const [name, resources] of Object.entries(requested.containers))
    containers[name] = notes.get(name)?.own ?? checkpointed?.containers[name] ?? resources;
  const noted = [...notes.values()].find((note) => note !== undefined);
  const { pod } = noted ? { pod: noted.whole } : (checkpointed ?? requested);
  const wholeInForce = noted ? undefined : checkpoints.inForce.get(uid)?.pod;
  return { allocated: { containers, ...(pod && { pod }) }, inForce: new Map(), wholeInForce, changed: false };
}

/** Resources that the newest container of a name was created with. */
function annotatedResources(name: string, runs: readonly ContainerStatus[]) {
  return parseResourcesAnnotation(newestRun({ containers: runs }, name)?.annotations[resourcesAnnotation]);
}

function recordsOf(entries: Iterable<readonly [string, Allocation]>): Map<string, ResourceRecord> {
  const records = new Map<string, ResourceRecord>();
  for (const [uid, { allocated, inForce, wholeInForce, changed }] of entries) {
    if (!changed) continue;
    records.set(uid, { allocated, inForce: Object.fromEntries(inForce), ...(wholeInForce && { wholeInForce }) });
  }
  return records;
}
