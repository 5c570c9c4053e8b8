import type { Logger } from "../lib/log.ts";
import type { Eviction } from "../pipeline.ts";
import { fullName } from "../pod/reference.ts";
import type { DesiredPod } from "../roles.ts";
import type { Sends } from "../state/signals.ts";
import { type StopDeps, isFinished, untilStopped, untilWorkers } from "../state/worker-phases.ts";
import { type GracePeriod, type ShutdownGroup, groupByPriority, podGraceSeconds } from "./groups.ts";

export interface EndPodsDeps extends StopDeps {
  readonly signals: Sends<"end">;
  readonly log: Logger;
}

const message = "Pod was terminated in response to imminent node shutdown.";
/** The reason in the pods' status and events. */
const podTermination: Eviction = { reason: "Terminated", message, disruption: message };

/** Ends pods group by group: a group starts when the previous group's containers are gone and its volumes unmounted, or when its time is
 *  over. CSI drivers, in the last group, serve the others until then. (kubelet, nodeshutdown_manager.go, killPods) @throws what the signal
 *  aborted with. */
export async function endPods(
  deps: EndPodsDeps,
  periods: readonly GracePeriod[],
  pods: readonly DesiredPod[],
  signal: AbortSignal,
): Promise<void> {
  for (const group of groupByPriority(periods, pods)) if (group.pods.length > 0) await endGroup(deps, group, signal);
}

async function endGroup(deps: EndPodsDeps, group: ShutdownGroup<DesiredPod>, signal: AbortSignal): Promise<void> {
  const { signals, worker, clock, log } = deps;
  const { seconds, priority } = group;
  const uids = group.pods.map(({ metadata }) => metadata.uid);
  const untilDeadline = clock.within(seconds * 1000, signal);
  const finished = untilWorkers(worker, uids, isFinished, untilDeadline);
  // An event reports a pod that takes longer than its own grace period.
  const stopped = group.pods.map((pod) => {
    const graceSeconds = podGraceSeconds(pod, group);
    log.info({ pod: fullName(pod), gracePeriod: graceSeconds }, "Shutdown manager killing pod with gracePeriod");
    signals.end.send(pod.metadata.uid, { graceSeconds, eviction: podTermination });
    return untilStopped(deps, pod, graceSeconds, untilDeadline).catch(() => false);
  });
  try {
    await Promise.all([finished, ...stopped]);
    log.info({ gracePeriod: seconds, priority }, "Done waiting for all pods in group to terminate");
  } catch {
    signal.throwIfAborted();
    const remaining = group.pods.filter(({ metadata }) => !isFinished(worker.get(metadata.uid)?.phase)).map(fullName);
    log.warn({ gracePeriod: seconds, priority, pods: remaining }, "Shutdown manager pod killing time out");
  }
}
