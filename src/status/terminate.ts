import type { ContainerStatus, Pod, PodStatus } from "../objects.ts";
import { isSidecar, isStaticPod } from "../pod/containers.ts";
import { lostContainer } from "./generate/container-status.ts";
import { isTerminal } from "../pod/phase.ts";

const lostMessage = "The container could not be located when the pod was terminated";

/** The final status of a pod whose containers are gone: all of them, and the pod, have ended. A container whose end was not observed
 *  counts as failed, unless it was never to start.
 *  @param status the newest known. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination */
export function terminatedStatus(pod: Pod, status: PodStatus): PodStatus {
  const { containerStatuses, initContainerStatuses, phase } = status;
  const tried = triedInitCount(initContainerStatuses ?? []);
  return {
    ...status,
    ...(containerStatuses && hasInitialized(pod) && { containerStatuses: containerStatuses.map(terminated) }),
    ...(initContainerStatuses && {
      initContainerStatuses: initContainerStatuses.map((one, index) => (index < tried ? terminated(one) : one)),
    }),
    ...(!isTerminal(phase) && !isStaticPod(pod) && { phase: "Failed" }),
  };
}

function terminated(status: ContainerStatus): ContainerStatus {
  return status.state?.terminated ? status : { ...status, state: { terminated: lostContainer(lostMessage) } };
}

/** Number of init containers that were tried: all up to the last that did more than wait, and always the first. */
function triedInitCount(statuses: readonly ContainerStatus[]): number {
  const last = statuses.findLastIndex(({ state, lastState }) => !state?.waiting || lastState?.terminated);
  return Math.max(last + 1, 1);
}

/** True if the API server's status shows that the main containers had been allowed to start. */
function hasInitialized({ spec, status }: Pod): boolean {
  if (!spec.initContainers?.length) return true;
  if (status?.containerStatuses?.some(({ state, lastState }) => lastState?.terminated || !state?.waiting)) return true;
  const last = status?.initContainerStatuses?.at(-1);
  const container = spec.initContainers.find(({ name }) => name === last?.name);
  if (!last || !container) return false;
  if (isSidecar(container)) return last.state?.running !== undefined && last.started === true;
  return last.state?.terminated?.exitCode === 0 || last.lastState?.terminated?.exitCode === 0;
}
