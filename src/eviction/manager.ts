import type { ClockAndLog } from "../lib/log.ts";
import { runPeriodically } from "../lib/periodic.ts";
import type { Runnable } from "../lib/runnables.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, WaitForTarget } from "../pipeline.ts";
import { podFullName } from "../pod/reference.ts";
import type { WorkerPhase, WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import { isFinished, untilStopped, untilWorkers } from "../state/worker-phases.ts";
import type { EvictedPod } from "./evict.ts";
import type { EnforceLocalLimits } from "./local-limits.ts";
import type { NodePressureRound } from "./node-pressure.ts";

export interface EvictionDeps extends ClockAndLog {
  /** Observes the node's resources and updates its pressure conditions. */
  readonly observeNode: (signal: AbortSignal) => Promise<NodePressureRound>;
  /** Absent if local storage limits are not enforced. */
  readonly enforceLocalLimits: EnforceLocalLimits | undefined;
  /** Resolves when the node may be under pressure before the next interval. */
  readonly changed: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** Terminated pods that still have API objects. */
  readonly terminatedPods: () => readonly Pod[];
  /** True once every pod source has reported. */
  readonly allSourcesReady: () => boolean;
  readonly worker: Pick<Column<WorkerView>, "get" | "onChange">;
  readonly events: EventSink;
  readonly waitForTarget: WaitForTarget | undefined;
}

/** The kubelet's monitoring period, and its timeout for cleaning up evicted pods, which is also the timeout for pod sources,
 *  milliseconds. */
const periodMs = 10_000;
const cleanupTimeoutMs = 30_000;

/** The eviction manager: evicts pods that exceed their own limits, and others under node pressure, one at a time; the next
 *  pass starts when that pod is cleaned up. After a restart it first waits for pods that had terminated before, since the
 *  previous process may have been killed while it waited. Until all pod sources have reported it only updates the node's
 *  conditions.
 *  @see https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/ */
export function createEviction(deps: EvictionDeps): Runnable {
  const { observeNode, enforceLocalLimits, log, allSourcesReady, terminatedPods, clock } = deps;
  let hasWaited = false;
  const sourcesDeadline = clock.monotonic() + cleanupTimeoutMs;
  /** True once all pods are known, or a source has not reported within the timeout. A pod that is not known yet may be about
   *  to free resources. */
  const canEvict = () => hasWaited || allSourcesReady() || clock.monotonic() >= sourcesDeadline;
  /** Waits once for terminated pods, as soon as all pods are known. @returns true if it waited. */
  const waitForTerminated = async (signal: AbortSignal): Promise<boolean> => {
    if (hasWaited || !allSourcesReady()) return false;
    hasWaited = true;
    const pods = terminatedPods();
    // Every pod with an API object gets a worker, at least for its cleanup.
    await waitForCleanup(deps, pods, (phase) => phase === "finished", signal);
    return pods.length > 0;
  };
  const onMeasureError = (signal: AbortSignal) => (err: unknown) => {
    signal.throwIfAborted();
    log.warn({ err }, "eviction manager: cannot measure disk usage of pods with limits; retrying");
    return [];
  };
  const synchronize = async (signal: AbortSignal): Promise<void> => {
    for (;;) {
      const { disks, reclaim } = await observeNode(signal);
      if (!canEvict()) return;
      if (await waitForTerminated(signal)) continue;
      const overLimits = (await enforceLocalLimits?.(disks, signal).catch(onMeasureError(signal))) ?? [];
      const evicted = overLimits.length > 0 ? overLimits : await reclaim(signal).then((one) => (one ? [one] : []));
      if (evicted.length === 0) return;
      await Promise.all(evicted.map((one) => waitForTermination(deps, one, signal)));
      await waitForCleanup(
        deps,
        evicted.map(({ pod }) => pod),
        isFinished,
        signal,
      );
    }
  };
  return runPeriodically({ ...deps, name: "eviction", intervalMs: periodMs }, synchronize);
}

/** Waits for a pod that was just evicted to end, as long as the kubelet does. */
async function waitForTermination(
  deps: EvictionDeps,
  { pod, graceSeconds }: EvictedPod,
  signal: AbortSignal,
): Promise<void> {
  if (graceSeconds === undefined || (await untilStopped(deps, pod, graceSeconds, signal))) return;
  deps.log.error({ pod: podFullName(pod) }, "evicted pod has not terminated in time");
}

/** Waits for pods to end and to be cleaned up, up to a timeout. */
async function waitForCleanup(
  { worker, clock, log }: EvictionDeps,
  pods: readonly Pod[],
  isGone: (phase: WorkerPhase | undefined) => boolean,
  signal: AbortSignal,
): Promise<void> {
  const uids = pods.map(({ metadata }) => metadata.uid);
  try {
    await untilWorkers(worker, uids, isGone, clock.within(cleanupTimeoutMs, signal));
  } catch {
    signal.throwIfAborted();
    log.warn({ pods: pods.map(podFullName) }, "timed out waiting for terminated pods to be cleaned up");
  }
}
