import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { restartsAfter, restartsKilled } from "../pod/restart.ts";
import { newestRun } from "../pod/runs.ts";
import { type ContainerResize, planResize } from "./plan-resize.ts";
import {
  type ContainerFacts,
  type PlannedKill,
  isChanged,
  killForFailedProbe,
  killInUnknownState,
} from "./planned-kill.ts";

/** The decision on one main container; empty for a container that stays terminated. */
interface MainAction {
  readonly keep?: true;
  readonly start?: boolean;
  readonly kill?: PlannedKill;
  readonly resize?: ContainerResize;
  readonly resizePod?: true;
}

/** Plans the main containers of an initialized pod. */
export function planMain(pod: Pod, observed: RuntimePod, facts: ContainerFacts) {
  const actions = pod.spec.containers.map((container) => {
    const status = newestRun(observed, container.name);
    const action =
      status?.state === ContainerState.CONTAINER_RUNNING
        ? actionForRunning(pod, container, status, facts)
        : actionForExited(pod, container, status);
    return { container, ...action };
  });
  return {
    /** At least one keeps running. */
    keepsAny: actions.some(({ keep }) => keep),
    /** In spec order. */
    start: actions.filter(({ start }) => start).map(({ container }) => container),
    kill: actions.flatMap(({ kill }) => kill ?? []),
    resize: actions.flatMap(({ resize }) => resize ?? []),
    /** A container restarts for a resize. */
    resizePod: actions.some((action) => action.resizePod),
  };
}

function actionForRunning(pod: Pod, container: Container, status: ContainerStatus, facts: ContainerFacts): MainAction {
  if (isChanged(container, status)) {
    const message = `Container ${container.name} definition changed, will be restarted`;
    return { start: true, kill: { status, message } };
  }
  const probe = facts.failedProbe(container.name, status.id);
  if (probe) {
    const start = restartsKilled(container, pod.spec);
    return { start, kill: killForFailedProbe("Container", container, status, probe, start) };
  }
  const resize = planResize(pod, container, status, facts);
  return resize && "kill" in resize ? { start: true, resizePod: true, ...resize } : { keep: true, ...resize };
}

/** Restarts the container according to its restart policy. */
function actionForExited(pod: Pod, container: Container, status: ContainerStatus | undefined): MainAction {
  if (pod.metadata.deletionTimestamp) return {};
  switch (status?.state) {
    case ContainerState.CONTAINER_EXITED:
      return { start: restartsAfter(container, pod.spec, status.exitCode) };
    case ContainerState.CONTAINER_UNKNOWN:
      return { start: true, kill: killInUnknownState("Container", status) };
    default:
      return { start: true };
  }
}
