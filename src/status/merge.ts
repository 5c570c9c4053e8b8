import type { PodCondition, PodStatus } from "../objects.ts";
import { disruptionCondition, isKubeletCondition, isOwnDisruption } from "../pod/conditions.ts";
import { isTerminal } from "../pod/phase.ts";

/** Circumstances of a status on its way. */
export interface Sending {
  /** A container of the pod may still be running. */
  readonly mayRun: boolean;
  /** RFC 3339. */
  readonly now: string;
  /** It is a mirror pod that shows it. */
  readonly isMirror?: boolean;
}

/** Status to show in the API server: this node's, with the conditions of others. A final phase is held back as long as
 *  a container may run; one that is shown already is never taken back, but for that of a mirror pod, of which the node alone says
 *  what becomes of it. Why the node ended a pod is told once, with its end, and counts from then.
 *  @param shown the status that the API server has.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase */
export function mergeStatus(shown: PodStatus, own: PodStatus, { mayRun, now, isMirror = false }: Sending): PodStatus {
  const foreign = (shown.conditions ?? []).filter(({ type }) => !isKubeletCondition(type));
  const mine = (own.conditions ?? []).filter(({ type }) => isKubeletCondition(type));
  const ends = !isTerminal(shown.phase) && isTerminal(own.phase);
  const keep = isTerminal(shown.phase) ? !isMirror && shown.phase !== own.phase : ends && mayRun;
  const { phase, reason, message } = keep ? shown : own;
  // It takes the place of what others said of a disruption.
  const why = ends && !mayRun ? (own.conditions ?? []).filter(isOwnDisruption) : [];
  const others = why.length > 0 ? foreign.filter(({ type }) => type !== disruptionCondition) : foreign;
  const told = why.map((condition) => ({ ...condition, lastTransitionTime: sinceOf(condition, foreign) ?? now }));
  return { ...own, phase, reason, message, conditions: [...others, ...told, ...mine] };
}

/** Since when a condition is shown to be so; undefined where it is not. */
function sinceOf({ type, status }: PodCondition, shown: readonly PodCondition[]): string | undefined {
  return shown.find((one) => one.type === type && one.status === status)?.lastTransitionTime;
}
