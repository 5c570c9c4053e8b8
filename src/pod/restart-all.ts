import { ContainerState } from "../gen/cri.ts";
import type { Pod, PodStatus } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { mayRestartAll, restartsAll } from "./restart.ts";
import { newestRun } from "./runs.ts";

/** Says that all containers of a pod are being taken away, to be started anew. */
export const allRestartingCondition = "AllContainersRestarting";

/** The reason by which a container shows that another one's end was its end. */
export const restartingAllReason = "RestartingAllContainers";

/** Whether all containers of the pod are to start anew: it was said before, or one has ended whose rule asks for it.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-all-containers */
export function allRestart(pod: Pod, observed: RuntimePod | undefined, previous: PodStatus | undefined): boolean {
  if (!mayRestartAll(pod.spec)) return false;
  if (isRestartingAll(previous)) return true;
  return [...(pod.spec.initContainers ?? []), ...pod.spec.containers].some((container) => {
    const run = newestRun(observed, container.name);
    return run?.state === ContainerState.CONTAINER_EXITED && restartsAll(container, run.exitCode);
  });
}

/** Nothing is left of the containers that are to start anew. */
export function allTakenAway({ spec }: Pod, observed: RuntimePod | undefined): boolean {
  return ![...(spec.initContainers ?? []), ...spec.containers].some(({ name }) => newestRun(observed, name));
}

/** Whether the status says that all containers are being taken away. */
export function isRestartingAll(status: PodStatus | undefined): boolean {
  return status?.conditions?.some((one) => one.type === allRestartingCondition && one.status === "True") === true;
}
