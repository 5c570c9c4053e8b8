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
  /** Column of the allocations alone. */
  readonly entries: ColumnWriter<Allocation>;
}

/** Allocated resources of pods, which may differ from their specs by now, and the resources in force. */
export interface Allocations extends ResourcesInForce {
  /** Records on the target, to be read first. */
  readonly records: RecordKeeper;
  /** The pod with what it has been given in place of what it asks for; the same pod where that is the same. */
  of(pod: AskedPod): GivenPod;
  /** The same, with no less than what is still in force: what a pod gives back is free once it is out of its hands. */
  held(pod: AskedPod): GivenPod;
  /** The pod has been given what it asks for. */
  isGranted(pod: AskedPod): boolean;
  /** A pod is taken in: it has what it was given before, or gets what it asks for. */
  take(pod: AskedPod): void;
  /** Gives a pod what its spec asks for, on record. @throws when the target cannot be written to: then it has what it had. */
  give(pod: AskedPod): Promise<void>;
  /** Puts on record what a pod has been given, before it asks for something else in vain. @throws as above. */
  keep(pod: AskedPod): Promise<void>;
  /** Drops what is on record of pods that never came and are not among these. */
  dropRecords(known: ReadonlySet<string>): void;
}

/** Resources that a pod has been given, and what of them is in force. */
export interface Allocation {
  readonly allocated: PodResources;
  readonly inForce: ReadonlyMap<string, Resources>;
  readonly wholeInForce: Resources | undefined;
  /** It has been changed since its containers were made: they do not tell all. */
  readonly changed: boolean;
}

/** Containers carry what they were made with, so only pods whose resources have changed since are kept on the target, in a file
 *  of the root directory; of containers that a kubelet made its own checkpoints tell. */
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
    // Every pod that comes is weighed beside all others.
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
      // The same object where nothing was put in place of what the pod asks for.
      const given: Pod = of(pod);
      return given === pod;
    },
    take: (pod) => void entryOf(pod),
    async give(pod) {
      const before = entryOf(pod);
      // Running containers keep their resources.
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
    /** That of a pod that is not known yet is found out. */
    entryOf,
    /** Puts another one in its place, on record. @throws when the target cannot be written to: then nothing is changed. */
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

/** The pod with no less than what is in force. */
function raisedPod(given: GivenPod, { wholeInForce }: Allocation, running: readonly Running[]): GivenPod {
  const inForce = new Map(running.map(({ run, resources }) => [containerNameOf(run), resources]));
  const { containers, pod: whole } = resourcesOf(given.spec);
  const raised = Object.entries(containers).map(([name, own]) => [name, raisedTo(own, inForce.get(name))] as const);
  const own = whole && raisedTo(whole, wholeInForce);
  return givenPod(withResources(given, { containers: Object.fromEntries(raised), ...(own && { pod: own }) }));
}

/** Resources in force for a container that was not resized since its start: those it was created with. */
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

/** Allocation before this agent knew the pod: by its record, by a kubelet's, or by what its containers were created with;
 *  else what it asks for. */
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

/** Resources that the newest container of that name was created with. */
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
