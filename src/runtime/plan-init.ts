import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import { restartsAfter, restartsKilled } from "../pod/restart.ts";
import { isInNewestSandbox, newestRun } from "../pod/runs.ts";
import { type ContainerResize, planResize } from "./plan-resize.ts";
import {
  type ContainerFacts,
  type PlannedKill,
  isChanged,
  killForFailedProbe,
  killInUnknownState,
} from "./planned-kill.ts";

/** The decision on a pod's init containers. */
export interface InitPlan {
  /** Main containers may run. */
  readonly initialized: boolean;
  /** The pod cannot be initialized any more. */
  readonly failed: boolean;
  /** In spec order. */
  readonly start: readonly Container[];
  readonly kill: readonly PlannedKill[];
  readonly resize: readonly ContainerResize[];
  /** An init container restarts for a resize. */
  readonly resizePod: boolean;
}

/** The decision on one init container. */
interface InitAction {
  readonly start?: true;
  readonly kill?: PlannedKill;
  /** Completed, or a sidecar that has started: the next one may start. */
  readonly passed?: true;
  readonly failed?: true;
  readonly resize?: ContainerResize;
  readonly resizePod?: true;
}

/** Init containers run one after another; a sidecar among them lets the next one start once it has started, and is then kept running.
 *  The last one with a status decides, since older ones may have been removed; before it only sidecars matter. Follows the kubelet's
 *  computeInitContainerActions, except that containers of earlier sandboxes are ignored: one that could not be removed would let later
 *  ones start too early.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/ */
export function planInit(pod: Pod, all: RuntimePod, facts: ContainerFacts): InitPlan {
  const observed = { ...all, containers: all.containers.filter((run) => isInNewestSandbox(all, run)) };
  const init = pod.spec.initContainers ?? [];
  let initialized = init.length === 0 || mainHasRun(pod, observed);
  let decided = initialized;
  const start: Container[] = [];
  const kill: PlannedKill[] = [];
  const resize: ContainerResize[] = [];
  let resizePod = false;
  for (const [index, container] of [...init.entries()].reverse()) {
    const status = newestRun(observed, container.name);
    if (decided && !isSidecar(container)) continue;
    if (!status) {
      if (decided) start.unshift(container);
      continue;
    }
    const action = actionFor({ pod, container, status, facts });
    if (action.failed) return { initialized: false, failed: true, start: [], kill: [], resize: [], resizePod: false };
    const next = init[index + 1];
    if (action.passed && !decided) {
      if (next) start.unshift(next);
      else initialized = true;
    }
    if (action.start) start.unshift(container);
    if (action.kill) kill.push(action.kill);
    if (action.resize) resize.unshift(action.resize);
    resizePod ||= action.resizePod === true;
    decided = true;
  }
  if (!decided) start.push(...init.slice(0, 1));
  return { initialized, failed: false, start, kill, resize, resizePod };
}

/** True if a main container was created or is running. Exited ones do not count: after a reboot, they belong to an earlier sandbox. */
function mainHasRun(pod: Pod, observed: RuntimePod): boolean {
  return pod.spec.containers.some(({ name }) => {
    const state = newestRun(observed, name)?.state;
    return state === ContainerState.CONTAINER_CREATED || state === ContainerState.CONTAINER_RUNNING;
  });
}

interface InitContext {
  readonly pod: Pod;
  readonly container: Container;
  readonly status: ContainerStatus;
  readonly facts: ContainerFacts;
}

function actionFor(present: InitContext): InitAction {
  const { pod, container, status } = present;
  switch (status.state) {
    case ContainerState.CONTAINER_CREATED:
      return { start: true };
    case ContainerState.CONTAINER_RUNNING:
      return isSidecar(container) ? actionForSidecar(present) : actionForResize(present);
    case ContainerState.CONTAINER_EXITED:
      if (isSidecar(container)) return { start: true };
      // An OOMKilled init container has failed even with exit code 0, but restarts according to its exit code.
      if (status.exitCode === 0 && status.reason !== "OOMKilled") return { passed: true };
      return restartsAfter(container, pod.spec, status.exitCode) ? { start: true } : { failed: true };
    default:
      if (!restartsKilled(container, pod.spec)) return { failed: true };
      return { start: true, kill: killInUnknownState("Init container", status) };
  }
}

/** An unhealthy sidecar is restarted; the containers after it do not wait for that. */
function actionForSidecar(present: InitContext): InitAction {
  const { container, status, facts } = present;
  const probe = facts.failedProbe(container.name, status.id);
  const probeKill = probe && killForFailedProbe("Init container", container, status, probe, false);
  if (probe === "startup") return { start: true, ...(probeKill && { kill: probeKill }) };
  if (container.startupProbe && !facts.hasStarted(container.name, status.id)) return {};
  if (isChanged(container, status)) {
    const message = `Init container ${container.name} definition changed`;
    return { passed: true, start: true, kill: { status, message } };
  }
  return { passed: true, ...(probeKill ? { start: true, kill: probeKill } : actionForResize(present)) };
}

/** Restarts the container for a resize, resizes it in place, or leaves it alone. */
function actionForResize({ pod, container, status, facts }: InitContext): InitAction {
  const resize = planResize(pod, container, status, facts);
  if (!resize) return {};
  return "kill" in resize ? { start: true, kill: resize.kill, resizePod: true } : resize;
}
