import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { PodCache, PodStore, WaitForTarget, RuntimePod } from "../pipeline.ts";
import { configSourceAnnotation } from "../pod/labels.ts";
import type { DesiredPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { SourceMilestone } from "../state/values.ts";
import type { PodWorkers } from "./pod-workers.ts";

export interface HousekeepingMeasures {
  /** Housekeeping cleaned up leftovers of this many pods. @param failed number of them that failed. */
  cleanedUp(pods: number, failed: number): void;
}

/** Metrics of orphans: pods in the runtime without a worker. */
export interface OrphanMeasures {
  /** An orphaned pod was found in the runtime. */
  orphanFound(): void;
}

export interface HousekeepingDeps extends ClockAndLog {
  readonly desired: PodStore;
  readonly worker: Column<WorkerView>;
  readonly workers: Pick<PodWorkers, "terminate" | "forget">;
  readonly podCache: PodCache;
  readonly waitForTarget: WaitForTarget | undefined;
  /** True once every source has reported: before that, no unknown pod may be treated as an orphan. */
  readonly allSourcesReady: () => boolean;
  /** Sources of this node: pods from other sources must not be terminated. */
  readonly sourcesReady: Pick<SourceMilestone, "names">;
  /** True if the pod is to be restarted once its worker is forgotten. */
  readonly isWaiting: (uid: string) => boolean;
  /** Re-checks static pods that wait for other pods to end. */
  readonly resumeWaiting: () => void;
  /** Pods that have a directory on the target. */
  readonly directories: (signal: AbortSignal) => Promise<readonly string[]>;
  /** Removes what is left of a terminated pod in the runtime and on the target.
   *  @param keepsContainers the pod restarts and its restart count continues: its containers are kept. */
  readonly cleanUpPod: (uid: string, keepsContainers: boolean, signal: AbortSignal) => Promise<void>;
  /** Drops allocation records of pods that are not among these. */
  readonly pruneRecords: (known: ReadonlySet<string>) => void;
  readonly measures: HousekeepingMeasures & OrphanMeasures;
}

/** The kubelet's housekeeping period, and the interval for listing pod directories when nothing was removed, milliseconds. */
const periodMs = 2_000;
const directoriesIntervalMs = 60_000;

/** Finds orphans (pods that only the runtime or the disk knows) and terminates them or removes what is left of them. */
export function createHousekeeping(deps: HousekeepingDeps): Runnable {
  const { desired, worker, workers, podCache, clock, log } = deps;
  const cleaningUp = new Set<string>();
  let directoriesDue = 0;

  /** @returns false if something is left. */
  const cleanUp = async (uid: string, signal: AbortSignal): Promise<boolean> => {
    if (cleaningUp.has(uid)) return true;
    cleaningUp.add(uid);
    try {
      await deps.cleanUpPod(uid, deps.isWaiting(uid) && restartsAlways(desired.get(uid)), signal);
      if (!desired.get(uid) || deps.isWaiting(uid)) workers.forget(uid);
      return true;
    } catch (error) {
      if (!signal.aborted) log.warn({ err: error, uid }, "cannot remove a pod's leftovers; retrying");
      return false;
    } finally {
      cleaningUp.delete(uid);
    }
  };

  /** True if no source wants the pod and no worker handles it. Pods from a source that this node does not use, such as a
   *  kubelet's static pods, are not orphans and must not be stopped. */
  const isOrphan = (uid: string) => !desired.get(uid) && !worker.get(uid) && !isOfOtherSource(podCache.get(uid));
  const isOfOtherSource = (pod: RuntimePod | undefined) =>
    pod?.sandboxes.some(({ annotations }) => {
      const source = annotations[configSourceAnnotation] ?? "api";
      return !deps.sourcesReady.names.some((own) => own === source);
    }) ?? false;
  const terminateOrphan = (uid: string) => {
    if (podCache.get(uid)) deps.measures.orphanFound();
    workers.terminate(uid, undefined);
  };
  const finished = () => worker.entries().flatMap(([uid, { phase }]) => (phase === "finished" ? [uid] : []));
  const housekeep = async (signal: AbortSignal) => {
    // A pod that is wanted again under the same UID restarts once its predecessor is removed, even if other sources have not reported.
    const restarting = finished().filter(deps.isWaiting);
    if (restarting.length > 0) await Promise.all(restarting.map((uid) => cleanUp(uid, signal)));
    deps.resumeWaiting();
    if (!deps.allSourcesReady()) return;
    for (const { uid } of podCache.list()) if (isOrphan(uid)) terminateOrphan(uid);
    const terminated = finished().filter((uid) => !desired.get(uid));
    for (const [uid, { phase }] of worker.entries())
      if (!desired.get(uid) && phase === "syncing") workers.terminate(uid, undefined);
    const known = new Set([
      ...desired.list().map(({ metadata }) => metadata.uid),
      ...worker.entries().map(([uid]) => uid),
    ]);
    const results = await Promise.all(terminated.map((uid) => cleanUp(uid, signal)));
    deps.measures.cleanedUp(results.length, results.filter((whole) => !whole).length);
    if (terminated.length === 0 && clock.monotonic() < directoriesDue) return;
    directoriesDue = clock.monotonic() + directoriesIntervalMs;
    deps.pruneRecords(known);
    for (const uid of await deps.directories(signal)) if (isOrphan(uid)) terminateOrphan(uid);
  };

  return runPeriodically({ ...deps, name: "housekeeping", intervalMs: periodMs }, housekeep);
}

/** True if the pod always restarts its containers. With other restart policies, containers of earlier runs would make it look
 *  completed. */
function restartsAlways(pod: DesiredPod | undefined): boolean {
  return pod !== undefined && (pod.spec.restartPolicy ?? "Always") === "Always";
}
