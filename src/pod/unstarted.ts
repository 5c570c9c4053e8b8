import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { PodStatus } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";

/** Failures before the runtime lets a container's process go. containerd: pkg/cri/server/container_start.go, whose last step is
 *  "failed to start containerd task"; the last two are Docker's. A container's own words follow those of the runtime. */
const beforeProcess =
  /^(failed to create containerd task|failed to wait for containerd task|failed to get (container info|sandbox runtime)|get container info|nri invoke|sandbox |invalid target container|OCI runtime create failed|failed to create (shim )?task)/;

/** The caller went away while the runtime was at work. Texts of Go's contexts and of gRPC. */
const cutOff = /context cancell?ed|context deadline exceeded|transport is closing|ttrpc: closed/;

/** True when the runtime's record of a container that failed to start shows that its process never ran. */
export function neverRan(run: ContainerStatus): boolean {
  return failedToStart(run) && beforeProcess.test(run.message);
}

/** True when a start was cut off at a moment at which the container's process may have been running already. */
export function mayHaveRun(run: ContainerStatus): boolean {
  return failedToStart(run) && !beforeProcess.test(run.message) && cutOff.test(run.message);
}

/** containerd's record of such a container has no start time; Docker has a state of its own for it, which the docker provider shows
 *  under cri-dockerd's name. */
function failedToStart({ state, reason, startedAt }: ContainerStatus): boolean {
  if (state !== ContainerState.CONTAINER_EXITED) return false;
  return (reason === "StartError" && startedAt === 0n) || reason === "ContainerCannotRun";
}

/** A pod in which each container whose start came to nothing unnoticed counts as created and never started, so that it is started
 *  again: the runtime gives up a start when the agent or the connection to it ends. With a kubelet such a start counts as a run,
 *  and fails a pod with `restartPolicy: Never`.
 *  @param isKnown true for a container whose failure was reported, or answered to the call that started it: it is one for good. */
export function withUnstarted(observed: RuntimePod, isKnown: (containerId: string) => boolean): RuntimePod {
  if (!observed.containers.some(neverRan)) return observed;
  return {
    ...observed,
    containers: observed.containers.map((run) =>
      neverRan(run) && !isKnown(run.id) ? { ...run, state: ContainerState.CONTAINER_CREATED } : run,
    ),
  };
}

/** IDs of the containers that a status reports as ended. */
export function reportedEnds(status: PodStatus | undefined): readonly string[] {
  const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = status ?? {};
  return [...initContainerStatuses, ...containerStatuses, ...ephemeralContainerStatuses].flatMap(
    ({ state, lastState }) =>
      [state?.terminated, lastState?.terminated].flatMap((end) => end?.containerID?.replace(/^.*:\/\//, "") ?? []),
  );
}
