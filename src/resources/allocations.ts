import type { ContainerStatus } from "../gen/cri.ts";
import type { Pod, Resources } from "../objects.ts";
import type { PodCache } from "../pipeline.ts";
import { resourcesAnnotation } from "../pod/labels.ts";
import { containerNameOf, newestRun, isRunning } from "../pod/runs.ts";
import {
  type PodResources,
  effectiveResources,
  parseResourcesNote,
  raisedTo,
  resourcesOf,
  withResources,
} from "../pod/resize.ts";
import type { ResourcesInForce } from "../resizes.ts";
import { type AskedPod, type GivenPod, givenPod } from "../roles.ts";
import type { ColumnWriter } from "../state/rows.ts";
import { type RecordKeeper, type RecordKeeperDeps, createRecordKeeper } from "./record-keeper.ts";
import type { FoundRecords, ResourceRecord } from "./resource-records.ts";

export interface AllocationsDeps extends RecordKeeperDeps {
  readonly cache: Pick<PodCache, "get">;
  /** Private column of the allocations. */
  readonly entries: ColumnWriter<Allocation>;
}

/** Allocated resources of pods, which may differ from their specs, and actuated resources. */
export interface Allocations extends ResourcesInForce {
  /** Records on the target, to be read before any pod is admitted. */
  readonly records: RecordKeeper;
  /** The pod with its allocated resources in place of its requested ones; the same object if they are equal. */
  of(pod: AskedPod): GivenPod;
  /** The allocated pod, with resources no lower than the actuated ones: a decrease frees resources only once it is actuated. */
  held(pod: AskedPod): GivenPod;
  /** True if the pod's allocation equals its request. */
  isGranted(pod: AskedPod): boolean;
  /** Restores a pod's previous allocation, or allocates what it requests. */
  take(pod: AskedPod): void;
  /** Allocates what a pod's spec requests, and checkpoints it. @throws if the target cannot be written to: the allocation is unchanged. */
  give(pod: AskedPod): Promise<void>;
  /** Checkpoints a pod's allocation, before a request that differs from it has to wait. @throws like `allocate`. */
  keep(pod: AskedPod): Promise<void>;
  /** Drops records of pods that have not been added and are not among these. */
  dropRecords(known: ReadonlySet<string>): void;
}

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
export function createAllocations(deps: AllocationsDeps): Allocations {
  const { records, get, entryOf, put, change } = createEntries(deps);
  const answers = new WeakMap<Allocation, { readonly asked: AskedPod; readonly given: GivenPod }>();
  const inForceOf = (pod: AskedPod | GivenPod, entry: Allocation, status: ContainerStatus) =>
    entry.inForce.get(status.id) ?? inForceSinceStart(pod, entry, status, records.left());
  const running = (pod: AskedPod | GivenPod, entry: Allocation) =>
    runsOf(deps, pod)
      .filter(isRunning)
      .map((run) => ({ run, resources: inForceOf(pod, entry, run) }));
  const of = (pod: AskedPod): GivenPod => {
    const entry = get(pod.metadata.uid);
    if (!entry) return givenPod(pod);
    // Called for all pods on each admission.
    const last = answers.get(entry);
    if (last?.asked === pod) return last.given;
    const given = givenPod(withResources(pod, entry.allocated));
    answers.set(entry, { asked: pod, given });
    return given;
  };
  return {
    records,
    of,
    held(pod) {
      const given = of(pod);
      const entry = get(pod.metadata.uid);
      return entry?.changed ? raisedPod(given, entry, running(given, entry)) : given;
    },
    isGranted(pod) {
      // The same object if the allocation equals the request.
      const given: Pod = of(pod);
      return given === pod;
    },
    take: (pod) => void entryOf(pod),
    async give(pod) {
      const before = entryOf(pod);
      // Running containers keep their resources until they are actuated.
      const inForce = new Map(running(pod, before).map(({ run, resources }) => [run.id, resources]));
      const wholeInForce = before.wholeInForce ?? before.allocated.pod ?? (pod.spec.resources && {});
      await put(pod, { allocated: resourcesOf(pod.spec), inForce, wholeInForce, changed: true });
    },
    async keep(pod) {
      const before = entryOf(pod);
      if (!before.changed) await put(pod, { ...before, changed: true });
    },
    ofContainer: (pod, status) => inForceOf(pod, entryOf(pod), status),
    ofPod(pod) {
      const { wholeInForce, allocated } = entryOf(pod);
      return wholeInForce ?? allocated.pod;
    },
    setContainer: (uid, id, resources) =>
      change(uid, ({ inForce }) => ({ inForce: new Map(inForce).set(id, resources) })),
    setPod: (uid, wholeInForce) => change(uid, () => ({ wholeInForce })),
    dropRecords(known) {
      for (const uid of records.uids()) if (!known.has(uid)) records.forget(uid);
    },
  };
}

/** Allocations by pod, and their records on the target. */
function createEntries(deps: AllocationsDeps) {
  const { entries } = deps;
  const records = createRecordKeeper(deps, () => recordsOf(entries.entries()));
  const entryOf = (pod: AskedPod | GivenPod): Allocation => {
    const { uid } = pod.metadata;
    const known = entries.get(uid);
    if (known) return known;
    const made = entryFrom(pod, runsOf(deps, pod), records.claim(uid), records.left());
    entries.set(uid, made);
    return made;
  };
  return {
    records,
    get: (uid: string) => entries.get(uid),
    /** The pod's allocation; restored or made if there is none yet. */
    entryOf,
    /** Replaces an allocation and checkpoints it. @throws if the target cannot be written to: the allocation is unchanged. */
    async put(pod: AskedPod, entry: Allocation): Promise<void> {
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

function runsOf({ cache }: Pick<AllocationsDeps, "cache">, { metadata }: AskedPod | GivenPod) {
  return cache.get(metadata.uid)?.containers ?? [];
}

interface Running {
  readonly run: ContainerStatus;
  readonly resources: Resources;
}

/** The pod with resources no lower than the actuated ones. */
function raisedPod(given: GivenPod, { wholeInForce }: Allocation, running: readonly Running[]): GivenPod {
  const inForce = new Map(running.map(({ run, resources }) => [containerNameOf(run), resources]));
  const { containers, pod: whole } = resourcesOf(given.spec);
  const raised = Object.entries(containers).map(([name, own]) => [name, raisedTo(own, inForce.get(name))] as const);
  const own = whole && raisedTo(whole, wholeInForce);
  return givenPod(withResources(given, { containers: Object.fromEntries(raised), ...(own && { pod: own }) }));
}

/** Actuated resources of a container that was not resized since its start: those it was created with. */
function inForceSinceStart(
  { metadata }: AskedPod | GivenPod,
  { allocated, wholeInForce }: Allocation,
  run: ContainerStatus,
  left: FoundRecords["kubelet"],
): Resources {
  const note = parseResourcesNote(run.annotations[resourcesAnnotation]);
  if (note) return effectiveResources(note.own, note.whole);
  const name = containerNameOf(run);
  const known = left.inForce.get(metadata.uid)?.containers[name] ?? allocated.containers[name];
  return effectiveResources(known, wholeInForce ?? allocated.pod);
}

/** Allocation of a pod that is new to this process: from its record, from the resources that its containers were created with, or from a
 *  kubelet's checkpoint; otherwise its request. */
function entryFrom(
  { metadata: { uid }, spec }: AskedPod | GivenPod,
  runs: readonly ContainerStatus[],
  record: ResourceRecord | undefined,
  left: FoundRecords["kubelet"],
): Allocation {
  if (record) {
    const { allocated, inForce, wholeInForce } = record;
    return { allocated, inForce: new Map(Object.entries(inForce)), wholeInForce, changed: true };
  }
  const asked = resourcesOf(spec);
  const given = left.allocated.get(uid);
  const notes = new Map(Object.keys(asked.containers).map((name) => [name, noteOf(name, runs)]));
  const containers: Record<string, Resources> = {};
  for (const [name, resources] of Object.entries(asked.containers))
    containers[name] = notes.get(name)?.own ?? given?.containers[name] ?? resources;
  const noted = [...notes.values()].find((note) => note !== undefined);
  const { pod } = noted ? { pod: noted.whole } : (given ?? asked);
  const wholeInForce = noted ? undefined : left.inForce.get(uid)?.pod;
  return { allocated: { containers, ...(pod && { pod }) }, inForce: new Map(), wholeInForce, changed: false };
}

/** Resources that the newest container of a name was created with. */
function noteOf(name: string, runs: readonly ContainerStatus[]) {
  return parseResourcesNote(newestRun({ containers: runs }, name)?.annotations[resourcesAnnotation]);
}

function recordsOf(entries: Iterable<readonly [string, Allocation]>): Map<string, ResourceRecord> {
  const records = new Map<string, ResourceRecord>();
  for (const [uid, { allocated, inForce, wholeInForce, changed }] of entries) {
    if (!changed) continue;
    records.set(uid, { allocated, inForce: Object.fromEntries(inForce), ...(wholeInForce && { wholeInForce }) });
  }
  return records;
}
