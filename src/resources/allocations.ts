import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { Pod, Resources } from "../objects.ts";
import type { PodCache } from "../pipeline.ts";
import { resourcesAnnotation } from "../pod/labels.ts";
import { containerNameOf, newestRun } from "../pod/runs.ts";
import {
  type PodResources,
  effectiveResources,
  parseResourcesNote,
  resourcesOf,
  withResources,
} from "../pod/resize.ts";
import type { ResourcesInForce } from "../resizes.ts";
import { type RecordKeeper, type RecordKeeperDeps, createRecordKeeper } from "./record-keeper.ts";
import type { FoundRecords, ResourceRecord } from "./resource-records.ts";

export interface AllocationsDeps extends RecordKeeperDeps {
  readonly cache: Pick<PodCache, "get">;
}

/** What pods have been given, which may be other than what their specs ask for by now, and what of it is in force. */
export interface Allocations extends ResourcesInForce {
  /** What is on record, to be read first. */
  readonly records: RecordKeeper;
  /** The pod with what it has been given in place of what it asks for; the same pod where that is the same. */
  of(pod: Pod): Pod;
  /** A pod is taken in: it has what it was given before, or gets what it asks for. */
  take(pod: Pod): void;
  /** Gives a pod what its spec asks for, on record. @throws when the target cannot be written to: then it has what it had. */
  give(pod: Pod): Promise<void>;
  forget(uid: string): void;
  /** The pods of which something is known. */
  uids(): readonly string[];
}

interface Entry {
  readonly allocated: PodResources;
  readonly inForce: ReadonlyMap<string, Resources>;
  readonly wholeInForce: Resources | undefined;
  /** It has been changed since its containers were made: they do not tell all. */
  readonly changed: boolean;
}

/** Containers carry what they were made with, so only pods whose resources have changed since are kept on the target, in a file
 *  of the root directory; of containers that a kubelet made its own checkpoints tell. */
export function createAllocations(deps: AllocationsDeps): Allocations {
  const entries = new Map<string, Entry>();
  const answers = new WeakMap<Entry, { readonly asked: Pod; readonly given: Pod }>();
  const records = createRecordKeeper(deps, () => recordsOf(entries));
  const runsOf = ({ metadata }: Pod) => deps.cache.get(metadata.uid)?.containers ?? [];
  const entryOf = (pod: Pod): Entry => {
    const { uid } = pod.metadata;
    const known = entries.get(uid);
    if (known) return known;
    const made = entryFrom(pod, runsOf(pod), records.claim(uid), records.left());
    entries.set(uid, made);
    return made;
  };
  const inForceOf = (pod: Pod, entry: Entry, status: ContainerStatus) =>
    entry.inForce.get(status.id) ?? inForceSinceStart(pod, entry, status, records.left());
  const change = (uid: string, how: (entry: Entry) => Partial<Entry>) => {
    const entry = entries.get(uid);
    if (entry) entries.set(uid, { ...entry, ...how(entry), changed: true });
    return records.save();
  };
  return {
    records,
    of(pod) {
      const entry = entries.get(pod.metadata.uid);
      if (!entry) return pod;
      // Every pod that comes is weighed beside all others.
      const last = answers.get(entry);
      if (last?.asked === pod) return last.given;
      const given = withResources(pod, entry.allocated);
      answers.set(entry, { asked: pod, given });
      return given;
    },
    take: (pod) => void entryOf(pod),
    async give(pod) {
      const { uid } = pod.metadata;
      const before = entryOf(pod);
      // What runs has what it had.
      const inForce = new Map(
        runsOf(pod)
          .filter(isRunning)
          .map((run) => [run.id, inForceOf(pod, before, run)]),
      );
      const wholeInForce = before.wholeInForce ?? before.allocated.pod ?? (pod.spec.resources && {});
      entries.set(uid, { allocated: resourcesOf(pod.spec), inForce, wholeInForce, changed: true });
      try {
        await records.save();
      } catch (error) {
        if (entries.has(uid)) entries.set(uid, before);
        throw error;
      }
    },
    ofContainer: (pod, status) => inForceOf(pod, entryOf(pod), status),
    ofPod(pod) {
      const { wholeInForce, allocated } = entryOf(pod);
      return wholeInForce ?? allocated.pod;
    },
    setContainer: (uid, id, resources) =>
      change(uid, ({ inForce }) => ({ inForce: new Map(inForce).set(id, resources) })),
    setPod: (uid, wholeInForce) => change(uid, () => ({ wholeInForce })),
    forget(uid) {
      entries.delete(uid);
      records.forget(uid);
    },
    uids: () => [...entries.keys(), ...records.uids()],
  };
}

/** What is in force for a container that has not been changed since it started: what it was made with. */
function inForceSinceStart(
  { metadata }: Pod,
  { allocated, wholeInForce }: Entry,
  run: ContainerStatus,
  left: FoundRecords["kubelet"],
): Resources {
  const note = parseResourcesNote(run.annotations[resourcesAnnotation]);
  if (note) return effectiveResources(note.own, note.whole);
  const name = containerNameOf(run);
  const known = left.inForce.get(metadata.uid)?.containers[name] ?? allocated.containers[name];
  return effectiveResources(known, wholeInForce ?? allocated.pod);
}

/** What a pod was given before this agent knew of it: by its record, by a kubelet's, or by what its containers were made with;
 *  else what it asks for. */
function entryFrom(
  { metadata: { uid }, spec }: Pod,
  runs: readonly ContainerStatus[],
  record: ResourceRecord | undefined,
  left: FoundRecords["kubelet"],
): Entry {
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

/** What the newest container of that name was made with. */
function noteOf(name: string, runs: readonly ContainerStatus[]) {
  return parseResourcesNote(newestRun({ containers: runs }, name)?.annotations[resourcesAnnotation]);
}

function isRunning({ state }: ContainerStatus): boolean {
  return state === ContainerState.CONTAINER_RUNNING;
}

function recordsOf(entries: ReadonlyMap<string, Entry>): Map<string, ResourceRecord> {
  const records = new Map<string, ResourceRecord>();
  for (const [uid, { allocated, inForce, wholeInForce, changed }] of entries) {
    if (!changed) continue;
    records.set(uid, { allocated, inForce: Object.fromEntries(inForce), ...(wholeInForce && { wholeInForce }) });
  }
  return records;
}
