import type { Pod } from "../objects.ts";
import { isCritical } from "../pod/containers.ts";
import { type QosClass, qosClass } from "../pod/qos.ts";
import { type InsufficientResource, freedBy } from "./fit.ts";

/** Amount of a resource to free, in the shortage's units. */
export interface AdmissionRequirement {
  readonly resource: string;
  readonly quantity: number;
}

export function requirementOf({ resource, requested, used, capacity }: InsufficientResource): AdmissionRequirement {
  return { resource, quantity: requested - (capacity - used) };
}

/** The pods to preempt, or the needs that no preemption can meet. */
export type Victims = { readonly pods: readonly Pod[] } | { readonly unmet: readonly AdmissionRequirement[] };

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

/** Distance of a pod from the needs: each resource has the same weight, whatever its amount. */
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
