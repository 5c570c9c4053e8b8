import { ContainerState } from "../gen/cri.ts";
import type { Pod, PodStatus } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { mayRestartAll, restartsAll } from "./restart.ts";
import { newestRun } from "./runs.ts";

/** Type of the condition for the removal of all containers of a pod in order to restart them. */
export const allRestartingCondition = "AllContainersRestarting";

/** Termination reason of a container that was stopped because another one's exit restarts all. */
export const restartingAllReason = "RestartingAllContainers";

/** True if all containers of the pod must restart: the status says so already, or a container with a RestartAllContainers rule has
 *  exited.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-all-containers */
export function shouldRestartAll(pod: Pod, observed: RuntimePod | undefined, previous: PodStatus | undefined): boolean {
  if (!mayRestartAll(pod.spec)) return false;
  if (isRestartingAll(previous)) return true;
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers].some((container) => {
    const run = newestRun(observed, container.name);
    return run?.state === ContainerState.CONTAINER_EXITED && restartsAll(container, run.exitCode);
  });
}

/** True once all containers to restart are removed. */
export function allContainersRemoved({ spec }: Pod, observed: RuntimePod | undefined): boolean {
  return ![...(spec.initContainers ?? []), ...spec.containers].some(({ name }) => newestRun(observed, name));
}

/** True if the status reports that all containers are being restarted. */
export function isRestartingAll(status: PodStatus | undefined): boolean {
  return status?.conditions?.some((one) => one.type === allRestartingCondition && one.status === "True") === true;
}
