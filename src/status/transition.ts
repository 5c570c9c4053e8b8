import type { Container, ContainerStatus, Pod, PodCondition, PodStatus } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { isKubeletCondition, isOwnDisruption, isResizeCondition, terminalReadiness } from "../pod/conditions.ts";
import { isTerminal } from "../pod/phase.ts";
import { mayRestartAll, restartsAfter } from "../pod/restart.ts";

/** Keeps what must not change between statuses: the start time, transition times of unchanged conditions, and a generation that only
 *  grows.
 *  @param before the previous status, or the API server's after a restart. @param now RFC 3339. */
export function withPreviousTimes(pod: Pod, before: PodStatus | undefined, next: PodStatus, now: string): PodStatus {
  const conditions = terminalConditions(next)?.map((condition) => {
    if (!isKubeletCondition(condition.type) && !isOwnDisruption(condition)) return condition;
    const known = before?.conditions?.find(({ type }) => type === condition.type);
    const lastTransitionTime = (known && isSameState(known, condition) && known.lastTransitionTime) || now;
    return { ...condition, ...probeTime(known, condition, now), lastTransitionTime };
  });
  const generation = Math.max(pod.metadata.generation ?? 0, before?.observedGeneration ?? 0);
  return {
    ...next,
    ...(conditions && { conditions }),
    startTime: before?.startTime || next.startTime || now,
    ...(generation > 0 && { observedGeneration: generation }),
  };
}

/** True if both conditions have the same state. The state of a resize condition is its reason, as its status is always True. */
function isSameState(known: PodCondition, condition: PodCondition): boolean {
  const { status, reason = "" } = condition;
  return known.status === status && (!isResizeCondition(condition) || (known.reason ?? "") === reason);
}

/** The kubelet sets lastProbeTime on resize conditions only, and keeps it while they are unchanged. */
function probeTime(
  known: PodCondition | undefined,
  condition: PodCondition,
  now: string,
): Pick<PodCondition, "lastProbeTime"> {
  if (!isResizeCondition(condition)) return {};
  const says = ({ status, reason = "", message = "", observedGeneration = 0 }: PodCondition) =>
    [status, reason, message, observedGeneration].join("\n");
  const lastProbeTime = known && says(known) === says(condition) ? known.lastProbeTime : now;
  return { ...(lastProbeTime && { lastProbeTime }) };
}

/** Returns the conditions of a status. A pod in a final phase is never ready, even if its last containers were.
 *  @see https://github.com/kubernetes/kubernetes/issues/108594 */
function terminalConditions({ phase, conditions }: PodStatus): readonly PodCondition[] | undefined {
  if (!isTerminal(phase)) return conditions;
  return conditions?.map((condition) => {
    const isReadiness = condition.type === "Ready" || condition.type === "ContainersReady";
    return isReadiness && condition.status === "True" ? { ...condition, ...terminalReadiness(phase) } : condition;
  });
}

/** Returns the name of the container that the new status would restart against its restart policy, if any. Such a status is a bug
 *  and must not be written. */
export function illegalTransition(pod: Pod, before: PodStatus | undefined, next: PodStatus): string | undefined {
  const { containers, initContainers = [] } = pod.spec;
  return (
    findIllegalTransition(pod, containers, before?.containerStatuses, next.containerStatuses) ??
    findIllegalTransition(
      pod,
      initContainers.filter((container) => !isSidecar(container)),
      before?.initContainerStatuses,
      next.initContainerStatuses,
    )
  );
}

function findIllegalTransition(
  pod: Pod,
  containers: readonly Container[],
  before: readonly ContainerStatus[] = [],
  next: readonly ContainerStatus[] = [],
): string | undefined {
  if ((pod.spec.restartPolicy ?? "Always") === "Always" || mayRestartAll(pod.spec)) return undefined;
  return containers.find((container) => {
    const ended = before.find(({ name }) => name === container.name)?.state?.terminated;
    if (!ended || restartsAfter(container, pod.spec, ended.exitCode)) return false;
    const now = next.find(({ name }) => name === container.name);
    return now !== undefined && !now.state?.terminated;
  })?.name;
}
