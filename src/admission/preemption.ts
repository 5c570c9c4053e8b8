import type { ClockAndLog } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, Eviction, Rejection } from "../pipeline.ts";
import { fullName, podReference } from "../pod/reference.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { Sends } from "../state/signals.ts";
import { untilStopped } from "../state/worker-phases.ts";
import type { InsufficientResource } from "./fit.ts";
import { type AdmissionRequirement, requirementOf, victimsFor } from "./victims.ts";

/** Preemptions. */
export interface PreemptionMeasures {
  /** A pod was preempted by a critical pod. @param resource first insufficient resource. */
  preempted(resource: string): void;
}

export interface PreemptionDeps extends ClockAndLog {
  readonly worker: Pick<Column<WorkerView>, "get" | "onChange">;
  readonly signals: Sends<"end">;
  readonly events: EventSink;
  readonly measures: PreemptionMeasures;
}

/** Preempts pods in favour of a critical one. @returns the rejection if that is impossible. @throws the signal's reason. */
export type Preempt = (
  pod: Pod,
  others: readonly Pod[],
  short: readonly InsufficientResource[],
  signal: AbortSignal,
) => Promise<Rejection | undefined>;

const preempted: Eviction = {
  reason: "Preempting",
  message: "Preempted in order to admit critical pod",
  disruption: "Pod was preempted by Kubelet to accommodate a critical pod.",
};

/** Ends pods so that a critical one fits, and waits for them. A pod that exceeds its time is no longer waited for and ends later.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/ */
export function createPreemption(deps: PreemptionDeps): Preempt {
  const { signals, events, measures, log } = deps;
  const preemptPod = async (victim: Pod, resource: string, signal: AbortSignal) => {
    events.event(podReference(victim), "Warning", preempted.reason, preempted.message);
    const grace = victim.spec.terminationGracePeriodSeconds ?? 0;
    const stopped = untilStopped(deps, victim, grace, signal);
    signals.end.send(victim.metadata.uid, { graceSeconds: undefined, eviction: preempted });
    if (await stopped) measures.preempted(resource);
    else log.error({ pod: fullName(victim) }, "timed out waiting for a preempted pod to end");
  };
  return async (pod, others, short, signal) => {
    const victims = victimsFor(pod, others, short.map(requirementOf));
    if ("unmet" in victims) return preemptionFailed(victims.unmet);
    const names = victims.pods.map(fullName);
    log.info({ pod: fullName(pod), short, preempted: names }, "preempting pods to admit a critical pod");
    await Promise.all(victims.pods.map((victim) => preemptPod(victim, short[0]?.resource ?? "", signal)));
    return undefined;
  };
}

function preemptionFailed(unmet: readonly AdmissionRequirement[]): Rejection {
  const list = unmet.map(({ resource, quantity }) => `(res: ${resource}, q: ${quantity}), `).join("");
  const why = `preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: [${list}]`;
  return {
    reason: "UnexpectedAdmissionError",
    message: `Unexpected error while attempting to recover from admission failure: ${why}`,
  };
}
