import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { Measures } from "../measures.ts";
import type { PodCache, PodStore, Presence, RuntimePod } from "../pipeline.ts";
import { configSourceAnnotation } from "../pod/labels.ts";
import type { AskedPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/rows.ts";
import type { SourceMarks } from "../state/cells.ts";
import type { PodWorkers } from "./pod-workers.ts";

export interface HousekeepingDeps {
  readonly pods: PodStore;
  readonly worker: Column<WorkerView>;
  readonly workers: Pick<PodWorkers, "terminate" | "forget">;
  readonly cache: PodCache;
  readonly presence?: Presence;
  /** True once every source has spoken: before that nothing unknown may be called an orphan. */
  readonly sourcesSeen: () => boolean;
  /** The sources that this node has: what another source wanted is not this node's to end. */
  readonly spoken: Pick<SourceMarks, "names">;
  /** The pod is to begin anew once its worker is forgotten. */
  readonly waits: (uid: string) => boolean;
  /** Lets static pods that wait for others' ends look again. */
  readonly resume: () => void;
  /** Pods that have a directory on the target. */
  readonly directories: (signal: AbortSignal) => Promise<readonly string[]>;
  /** A pod is gone for good: what is left of it in the runtime and on the target may go too.
   *  @param countsOn it begins anew, and its restarts are counted on: its containers stay. */
  readonly sweep: (uid: string, countsOn: boolean, signal: AbortSignal) => Promise<void>;
  /** Drops what is on record of pods that are not among these. */
  readonly dropRecords: (known: ReadonlySet<string>) => void;
  readonly measures: Pick<Measures, "swept">;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The kubelet's housekeeping period, and how often the target's directories are read when nothing was removed. */
const periodMs = 2_000;
const directoriesEveryMs = 60_000;

/** Finds what should not be there (pods that only the runtime or the disk knows) and hands it to a worker or the sweeper. */
export function createHousekeeping(deps: HousekeepingDeps): Service {
  const { pods, worker, workers, cache, clock, log } = deps;
  const sweeping = new Set<string>();
  let directoriesDue = 0;

  /** @returns false when something is left. */
  const sweep = async (uid: string, signal: AbortSignal): Promise<boolean> => {
    if (sweeping.has(uid)) return true;
    sweeping.add(uid);
    try {
      await deps.sweep(uid, deps.waits(uid) && restartsAlways(pods.get(uid)), signal);
      if (!pods.get(uid) || deps.waits(uid)) workers.forget(uid);
      return true;
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, uid }, "leftovers of a pod could not be removed, will try again");
      return false;
    } finally {
      sweeping.delete(uid);
    }
  };

  /** Neither wanted nor worked on. Without manifests a kubelet's static pods are not known here, and are not ours to stop. */
  const isStray = (uid: string) => !pods.get(uid) && !worker.get(uid) && !isOfOtherSource(cache.get(uid));
  const isOfOtherSource = (pod: RuntimePod | undefined) =>
    pod?.sandboxes.some(({ annotations }) => {
      const source = annotations[configSourceAnnotation] ?? "api";
      return !deps.spoken.names.some((own) => own === source);
    }) ?? false;
  const finished = () => worker.entries().flatMap(([uid, { phase }]) => (phase === "finished" ? [uid] : []));
  const tidy = async (signal: AbortSignal) => {
    // A pod wanted again under its old UID begins anew once its predecessor is swept away, whatever other sources have said.
    const anew = finished().filter(deps.waits);
    if (anew.length > 0) await Promise.all(anew.map((uid) => sweep(uid, signal)));
    deps.resume();
    if (!deps.sourcesSeen()) return;
    for (const { uid } of cache.list()) if (isStray(uid)) workers.terminate(uid, undefined);
    const gone = finished().filter((uid) => !pods.get(uid));
    for (const [uid, { phase }] of worker.entries())
      if (!pods.get(uid) && phase === "syncing") workers.terminate(uid, undefined);
    const known = new Set([
      ...pods.list().map(({ metadata }) => metadata.uid),
      ...worker.entries().map(([uid]) => uid),
    ]);
    const swept = await Promise.all(gone.map((uid) => sweep(uid, signal)));
    deps.measures.swept(swept.length, swept.filter((whole) => !whole).length);
    if (gone.length === 0 && clock.monotonic() < directoriesDue) return;
    directoriesDue = clock.monotonic() + directoriesEveryMs;
    deps.dropRecords(known);
    for (const uid of await deps.directories(signal)) if (isStray(uid)) workers.terminate(uid, undefined);
  };

  return patrol({ ...deps, name: "housekeeping", everyMs: periodMs }, tidy);
}

/** Earlier runs would show a pod that need not restart as one that has run already. */
function restartsAlways(pod: AskedPod | undefined): boolean {
  return pod !== undefined && (pod.spec.restartPolicy ?? "Always") === "Always";
}
