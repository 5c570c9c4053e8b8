import type { PodStatus } from "../objects.ts";
import { disruptionCondition, isKubeletCondition, isOwnDisruption } from "../pod/conditions.ts";
import { isTerminal } from "../pod/phase.ts";

/** Status to show in the API server: this node's, with the conditions of others. A final phase is held back as long as
 *  a container may run; one that is shown already is never taken back, but for that of a mirror pod, of which the node alone says
 *  what becomes of it.
 *  @param shown the status that the API server has. @param mayRun a container of the pod may still be running.
 *  @param isMirror it is a mirror pod that shows it.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase */
export function mergeStatus(shown: PodStatus, own: PodStatus, mayRun: boolean, isMirror = false): PodStatus {
  const foreign = (shown.conditions ?? []).filter(({ type }) => !isKubeletCondition(type));
  const mine = (own.conditions ?? []).filter(({ type }) => isKubeletCondition(type));
  const heldBack = mayRun && isTerminal(own.phase);
  const keep = isTerminal(shown.phase) ? !isMirror && shown.phase !== own.phase : heldBack;
  const { phase, reason, message } = keep ? shown : own;
  // Why the node ended the pod is told with its end, and takes the place of what others said of a disruption.
  const why = isTerminal(own.phase) && !keep ? (own.conditions ?? []).filter(isOwnDisruption) : [];
  const others = why.length > 0 ? foreign.filter(({ type }) => type !== disruptionCondition) : foreign;
  return { ...own, phase, reason, message, conditions: [...others, ...why, ...mine] };
}
