import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import { patrol } from "../lib/patrol.ts";
import type { Service } from "../lib/service-group.ts";
import type { Pod } from "../objects.ts";
import type { PodCache, PodStore, Presence, RuntimePod, SourceName } from "../pipeline.ts";
import { configSourceAnnotation } from "../pod/labels.ts";
import type { PodWorkers } from "./pod-workers.ts";

export interface HousekeepingDeps {
  readonly pods: PodStore;
  readonly workers: PodWorkers;
  readonly cache: PodCache;
  readonly presence?: Presence;
  /** True once every source has spoken: before that nothing unknown may be called an orphan. */
  readonly sourcesSeen: () => boolean;
  /** The sources that this node has: what another source wanted is not this node's to end. */
  readonly sources: readonly SourceName[];
  /** The pod is to begin anew once its worker is forgotten. */
  readonly waits: (uid: string) => boolean;
  /** What waits for the end of other pods may look whether it has come. */
  readonly resume: () => void;
  /** Pods that have a directory on the target. */
  readonly directories: (signal: AbortSignal) => Promise<readonly string[]>;
  /** A pod is gone for good: what is left of it in the runtime and on the target may go too.
   *  @param countsOn it begins anew, and its restarts are counted on: its containers stay. */
  readonly sweep: (uid: string, countsOn: boolean, signal: AbortSignal) => Promise<void>;
  /** The pods that still exist, for those who keep something for each. */
  readonly forgetExcept: (known: ReadonlySet<string>) => void;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The kubelet's housekeeping period, and how often the target's directories are read when nothing was removed. */
const periodMs = 2_000;
const directoriesEveryMs = 60_000;

/** Finds what should not be there (pods that only the runtime or the disk knows) and hands it to a worker or the sweeper. */
export function createHousekeeping(deps: HousekeepingDeps): Service {
  const { pods, workers, cache, clock, log } = deps;
  const sweeping = new Set<string>();
  let directoriesDue = 0;

  const sweep = async (uid: string, signal: AbortSignal) => {
    if (sweeping.has(uid)) return;
    sweeping.add(uid);
    try {
      await deps.sweep(uid, deps.waits(uid) && restartsAlways(pods.get(uid)), signal);
      if (!pods.get(uid) || deps.waits(uid)) workers.forget(uid);
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, uid }, "leftovers of a pod could not be removed, will try again");
    } finally {
      sweeping.delete(uid);
    }
  };

  /** Nobody wants this pod. Without manifests a kubelet's static pods are not known here, and are not ours to stop. */
  const isStray = (uid: string) => !pods.get(uid) && !workers.get(uid) && !isOfOtherSource(cache.get(uid));
  const isOfOtherSource = (pod: RuntimePod | undefined) =>
    pod?.sandboxes.some(({ annotations }) => {
      const source = annotations[configSourceAnnotation] ?? "api";
      return !deps.sources.some((own) => own === source);
    }) ?? false;
  const tidy = async (signal: AbortSignal) => {
    // What is wanted again under its old UID begins anew once what it was is swept away, whatever other sources have said.
    const anew = workers.list().filter(({ uid, worker }) => worker.phase === "finished" && deps.waits(uid));
    if (anew.length > 0) await Promise.all(anew.map(({ uid }) => sweep(uid, signal)));
    deps.resume();
    if (!deps.sourcesSeen()) return;
    for (const { uid } of cache.list()) if (isStray(uid)) workers.terminate(uid, undefined);
    const gone = workers.list().filter(({ uid, worker }) => !pods.get(uid) && worker.phase === "finished");
    for (const { uid, worker } of workers.list())
      if (!pods.get(uid) && worker.phase === "syncing") workers.terminate(uid, undefined);
    const known = new Set([
      ...pods.list().map(({ metadata }) => metadata.uid),
      ...workers.list().map(({ uid }) => uid),
    ]);
    await Promise.all(gone.map(({ uid }) => sweep(uid, signal)));
    if (gone.length === 0 && clock.monotonic() < directoriesDue) return;
    directoriesDue = clock.monotonic() + directoriesEveryMs;
    deps.forgetExcept(known);
    for (const uid of await deps.directories(signal)) if (isStray(uid)) workers.terminate(uid, undefined);
  };

  return patrol({ ...deps, name: "housekeeping", everyMs: periodMs }, tidy);
}

/** Of a pod that need not restart, what ran before would tell that it has run already. */
function restartsAlways(pod: Pod | undefined): boolean {
  return pod !== undefined && (pod.spec.restartPolicy ?? "Always") === "Always";
}
