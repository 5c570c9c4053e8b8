import type { PodCondition, PodStatus } from "../objects.ts";
import { disruptionCondition, isKubeletCondition, isOwnDisruption } from "../pod/conditions.ts";
import { isTerminal } from "../pod/phase.ts";

/** Context of a status update. */
export interface MergeContext {
  /** A container of the pod may still be running. */
  readonly mayRun: boolean;
  /** RFC 3339. */
  readonly now: string;
  /** The API object is a mirror pod. */
  readonly isMirror?: boolean;
}

/** Merges this node's status with the conditions of other components. A final phase is held back while a container may run. A final
 *  phase already shown is kept, except on a mirror pod, whose phase only the node decides. A disruption reason is reported once,
 *  together with the end, and its transition time starts then.
 *  @param shown the API server's current status.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase */
export function mergeStatus(
  shown: PodStatus,
  own: PodStatus,
  { mayRun, now, isMirror = false }: MergeContext,
): PodStatus {
  const foreign = (shown.conditions ?? []).filter(({ type }) => !isKubeletCondition(type));
  const kubeletConditions = (own.conditions ?? []).filter(({ type }) => isKubeletCondition(type));
  const ends = !isTerminal(shown.phase) && isTerminal(own.phase);
  const keepsShownPhase = isTerminal(shown.phase) ? !isMirror && shown.phase !== own.phase : ends && mayRun;
  const { phase, reason, message } = keepsShownPhase ? shown : own;
  // Replaces a DisruptionTarget condition set by others.
  const ownDisruption = ends && !mayRun ? (own.conditions ?? []).filter(isOwnDisruption) : [];
  const others = ownDisruption.length > 0 ? foreign.filter(({ type }) => type !== disruptionCondition) : foreign;
  const disruptions = ownDisruption.map((condition) => ({
    ...condition,
    lastTransitionTime: shownTransitionTime(condition, foreign) ?? now,
  }));
  return { ...own, phase, reason, message, conditions: [...others, ...disruptions, ...kubeletConditions] };
}

/** Transition time of an equal condition that is already shown; undefined if there is none. */
function shownTransitionTime({ type, status }: PodCondition, shown: readonly PodCondition[]): string | undefined {
  return shown.find((one) => one.type === type && one.status === status)?.lastTransitionTime;
}
