import type { ClockAndLog } from "../lib/log.ts";
import type { Pod } from "../objects.ts";
import type { EventSink, Eviction, Rejection } from "../pipeline.ts";
import { podFullName, podReference } from "../pod/reference.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { Sends } from "../state/signals.ts";
import { untilStopped } from "../state/worker-phases.ts";
import { type InsufficientResource, freedBy } from "./fit.ts";
import { isCritical } from "../pod/containers.ts";
import { type QosClass, qosClass } from "../pod/qos.ts";

export interface PreemptionMeasures {
  /** A pod was preempted by a critical pod. @param resource first insufficient resource. */
  preempted(resource: string): void;
}

export interface PreemptionDeps extends ClockAndLog {
  readonly worker: Pick<Column<WorkerView>, "get" | "onChange">;
  readonly signals: Sends<"terminatePod">;
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
    signals.terminatePod.send(victim.metadata.uid, { graceSeconds: undefined, eviction: preempted });
    if (await stopped) measures.preempted(resource);
    else log.error({ pod: podFullName(victim) }, "timed out waiting for a preempted pod to end");
  };
  return async (pod, others, short, signal) => {
    const victims = victimsFor(pod, others, short.map(requirementOf));
    if ("unmet" in victims) return preemptionFailed(victims.unmet);
    const names = victims.pods.map(podFullName);
    log.info({ pod: podFullName(pod), short, preempted: names }, "preempting pods to admit a critical pod");
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

/** Amount of a resource to free, in the shortage's units. */
export interface AdmissionRequirement {
  readonly resource: string;
  readonly quantity: number;
}

function requirementOf({ resource, requested, used, capacity }: InsufficientResource): AdmissionRequirement {
  return { resource, quantity: requested - (capacity - used) };
}

/** The pods to preempt, or the needs that no preemption can meet. */
type Victims = { readonly pods: readonly Pod[] } | { readonly unmet: readonly AdmissionRequirement[] };

/** The pods to preempt, chosen as the kubelet does: it spares better QoS classes first, then ends as few pods of a class as possible,
 *  then those with the smallest requests. Pure.
 *  @see https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/ */
export function victimsFor(pod: Pod, others: readonly Pod[], needs: readonly AdmissionRequirement[]): Victims {
  const preemptible = others.filter((other) => isPreemptedBy(other, pod));
  const unmet = remainingNeeds(needs, preemptible);
  if (unmet.length > 0) return { unmet };
  const of = (wanted: QosClass) =>
    preemptible.filter(({ status, spec }) => (status?.qosClass || qosClass(spec)) === wanted);
  const [bestEffort, burstable] = [of("BestEffort"), of("Burstable")];
  const guaranteed = closestFit(of("Guaranteed"), remainingNeeds(needs, [...bestEffort, ...burstable]));
  const ofBurstable = closestFit(burstable, remainingNeeds(needs, [...bestEffort, ...guaranteed]));
  const ofBestEffort = closestFit(bestEffort, remainingNeeds(needs, [...ofBurstable, ...guaranteed]));
  return { pods: [...ofBestEffort, ...ofBurstable, ...guaranteed] };
}

/** A critical pod preempts any pod that is not critical; otherwise the higher priority preempts the lower. */
function isPreemptedBy(other: Pod, pod: Pod): boolean {
  if (isCritical(pod) && !isCritical(other)) return true;
  const [own, theirs] = [pod.spec.priority, other.spec.priority];
  return own !== undefined && theirs !== undefined && own > theirs;
}

/** Resources that are still needed once these pods are gone. */
function remainingNeeds(needs: readonly AdmissionRequirement[], gone: readonly Pod[]): readonly AdmissionRequirement[] {
  return needs
    .map(({ resource, quantity }) => ({
      resource,
      quantity: gone.reduce((still, pod) => still - freedBy(pod, resource), quantity),
    }))
    .filter(({ quantity }) => quantity > 0);
}

/** Picks the pod closest to the remaining needs until they are met; on a tie, the one with smaller requests. */
function closestFit(pods: readonly Pod[], needs: readonly AdmissionRequirement[]): readonly Pod[] {
  const candidates = [...pods];
  const chosen: Pod[] = [];
  for (let remaining = needs; remaining.length > 0; remaining = remainingNeeds(needs, chosen)) {
    const best = candidates.reduce<Pod | undefined>(
      (known, pod) => (known === undefined || isBetter(pod, known, remaining) ? pod : known),
      undefined,
    );
    if (!best) break;
    candidates.splice(candidates.indexOf(best), 1);
    chosen.push(best);
  }
  return chosen;
}

function isBetter(pod: Pod, known: Pod, needs: readonly AdmissionRequirement[]): boolean {
  const difference = distance(needs, pod) - distance(needs, known);
  return difference === 0 ? isSmaller(pod, known) : difference < 0;
}

/** Distance between a pod's requests and the needs; each resource has the same weight, regardless of its amount. */
function distance(needs: readonly AdmissionRequirement[], pod: Pod): number {
  return needs.reduce((sum, { resource, quantity }) => {
    const missing = Math.max(0, quantity - freedBy(pod, resource)) / quantity;
    return sum + missing ** 2;
  }, 0);
}

function isSmaller(pod: Pod, other: Pod): boolean {
  const [memory, cpu] = ["memory", "cpu"].map((name) => freedBy(pod, name) - freedBy(other, name));
  return (memory || cpu || 0) <= 0;
}
