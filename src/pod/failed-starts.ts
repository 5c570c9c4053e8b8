import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { PodStatus } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";

/** Errors before a container's process starts. From containerd's pkg/cri/server/container_start.go, whose last step is "failed to start
 *  containerd task"; the last two alternatives are Docker's. The container's own error text follows the runtime's. */
const beforeProcess =
  /^(failed to create containerd task|failed to wait for containerd task|failed to get (container info|sandbox runtime)|get container info|nri invoke|sandbox |invalid target container|OCI runtime create failed|failed to create (shim )?task)/;

/** The caller disconnected during the call. Texts of Go's contexts and of gRPC. */
const callerGone = /context cancell?ed|context deadline exceeded|transport is closing|ttrpc: closed/;

/** True if a container's status shows that its process never ran. */
export function neverRan(run: ContainerStatus): boolean {
  return failedToStart(run) && beforeProcess.test(run.message);
}

/** True if a start was interrupted when the container's process may already have been running. */
export function mayHaveRun(run: ContainerStatus): boolean {
  return failedToStart(run) && !beforeProcess.test(run.message) && callerGone.test(run.message);
}

/** containerd reports such a container without a start time; Docker has its own state for it, which the docker provider maps to
 *  cri-dockerd's reason. */
function failedToStart({ state, reason, startedAt }: ContainerStatus): boolean {
  if (state !== ContainerState.CONTAINER_EXITED) return false;
  return (reason === "StartError" && startedAt === 0n) || reason === "ContainerCannotRun";
}

/** Treats containers whose start failed unnoticed as created and never started, so that they are started again: the runtime aborts a
 *  start when the agent or the connection to it ends. With the kubelet such a start counts as a run, and fails a pod with
 *  `restartPolicy: Never`.
 *  @param isKnown true for a container whose failure was reported, or returned to the call that started it: that one stays failed. */
export function resetFailedStarts(observed: RuntimePod, isKnown: (containerId: string) => boolean): RuntimePod {
  if (!observed.containers.some(neverRan)) return observed;
  return {
    ...observed,
    containers: observed.containers.map((run) =>
      neverRan(run) && !isKnown(run.id) ? { ...run, state: ContainerState.CONTAINER_CREATED } : run,
    ),
  };
}

/** IDs of the containers that a status reports as terminated. */
export function reportedTerminations(status: PodStatus | undefined): readonly string[] {
  const { containerStatuses = [], initContainerStatuses = [], ephemeralContainerStatuses = [] } = status ?? {};
  return [...initContainerStatuses, ...containerStatuses, ...ephemeralContainerStatuses].flatMap(
    ({ state, lastState }) =>
      [state?.terminated, lastState?.terminated].flatMap((end) => end?.containerID?.replace(/^.*:\/\//, "") ?? []),
  );
}
