import { ContainerState, type ContainerStatus, type PodSandboxStatus } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { restartsAll, restartsAfter, restartsKilled } from "../pod/restart.ts";
import { sandboxIsCurrent } from "../pod/sandbox.ts";
import { containerNameOf, isInNewestSandbox, newestRun, runsOf } from "../pod/runs.ts";
import { planInit } from "./plan-init.ts";
import { resizesPodLevel, type ContainerResize, planResize } from "./plan-resize.ts";
import {
  type ContainerFacts,
  type PlannedKill,
  isChanged,
  killForFailedProbe,
  killInUnknownState,
} from "./planned-kill.ts";
import type { Step, ContainerType } from "./step.ts";

/** Defaults: no probe results and no resizes. */
const noFacts: ContainerFacts = {
  failedProbe: () => undefined,
  hasStarted: () => false,
  restartAll: false,
  actualResources: () => undefined,
  actualPodResources: ({ spec }) => spec.resources,
  podCgroupIsStale: false,
};

/** Plans the steps that bring the runtime's pod to its spec. Pure; follows the kubelet's computePodActions.
 *  @returns the steps of one pass, in order; empty for a pod that needs nothing.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function planPod(pod: Pod, observed: RuntimePod, known: Partial<ContainerFacts> = {}): readonly Step[] {
  const facts = { ...noFacts, ...known };
  if (facts.restartAll) return planReset(pod, observed);
  const [newest] = observed.sandboxes;
  return newest && sandboxIsCurrent(pod, observed)
    ? planContainers(pod, observed, facts, newest)
    : planNewSandbox(pod, observed, newest);
}

const killPodStep: Step = { kind: "killPod", sandboxChanged: false };

function startStep(
  containerType: ContainerType,
  inNewSandbox: boolean,
): (container: Container) => Step<"startContainer"> {
  return (container) => ({ kind: "startContainer", container, containerType, inNewSandbox });
}

/** A replacement sandbox gets the next attempt and starts from the first init container again; the old init containers are removed. */
function planNewSandbox(pod: Pod, observed: RuntimePod, newest: PodSandboxStatus | undefined): readonly Step[] {
  const attempt = newest ? attemptOf(newest) + 1 : 0;
  const starts = planFirstStarts(pod, observed, attempt);
  if (!starts) return [killPodStep];
  const isNew = observed.sandboxes.length + observed.containers.length === 0;
  const names = new Set(pod.spec.initContainers?.map(({ name }) => name));
  const cleanup: readonly Step[] = isNew
    ? []
    : [
        { kind: "killPod", sandboxChanged: newest !== undefined },
        ...observed.containers.filter((run) => names.has(containerNameOf(run))).map(removeStep),
      ];
  return [...cleanup, { kind: "runSandbox", attempt }, ...starts];
}

/** The containers that start right after a new sandbox; undefined if the pod has finished and gets none. Containers that were created
 *  and never started do not finish a pod with `restartPolicy: Never`: none of them has run. */
function planFirstStarts(pod: Pod, observed: RuntimePod, attempt: number): readonly Step[] | undefined {
  const policy = pod.spec.restartPolicy ?? "Always";
  const hasRun = observed.containers.some(({ state }) => state !== ContainerState.CONTAINER_CREATED);
  if (policy === "Never" && attempt !== 0 && hasRun) return undefined;
  const start = pod.spec.containers.filter(
    ({ name, restartPolicy }) => !((restartPolicy ?? policy) === "OnFailure" && succeeded(newestRun(observed, name))),
  );
  const initialized = pod.spec.containers.some(({ name }) => {
    const state = newestRun(observed, name)?.state;
    return state !== undefined && state !== ContainerState.CONTAINER_UNKNOWN;
  });
  if (start.length === 0 && initialized) return undefined;
  const firstInit = pod.spec.initContainers?.[0];
  return firstInit ? [startStep("init_container", true)(firstInit)] : start.map(startStep("container", true));
}

/** Kills, removals, resizes, then starts: ephemeral containers, init containers, main containers. */
function planContainers(
  pod: Pod,
  observed: RuntimePod,
  facts: ContainerFacts,
  sandbox: PodSandboxStatus,
): readonly Step[] {
  const init = planInit(pod, observed, facts);
  if (init.failed) return [killPodStep];
  const main = init.initialized ? planMain(pod, observed, facts) : undefined;
  // Sidecars do not keep a pod running.
  if (main && !main.keepsAny && main.start.length === 0) return [killPodStep];
  const kills = [...init.kill, ...(main?.kill ?? [])].map((kill): Step => ({ kind: "killContainer", ...kill }));
  const containers = [...init.resize, ...(main?.resize ?? [])];
  const wholePod = init.resizePod || (main !== undefined && (main.resizePod || resizesPodLevel(pod, facts)));
  const starts = [
    ...unstartedEphemeral(pod, observed).map(startStep("ephemeral_container", false)),
    ...init.start.map(startStep("init_container", false)),
    ...(main?.start ?? []).map(startStep("container", false)),
  ];
  const { id: sandboxId } = sandbox;
  const rest: readonly Step[] = [
    ...(wholePod || containers.length > 0 ? [{ kind: "resize", containers, wholePod } as const] : []),
    ...(starts.length > 0 ? [{ kind: "useSandbox", sandboxId, attempt: attemptOf(sandbox) } as const] : []),
    ...starts,
  ];
  return kills.length + rest.length === 0 ? [] : [...kills, ...pruneInit(pod, observed), ...rest];
}

function attemptOf({ metadata }: PodSandboxStatus): number {
  return metadata?.attempt ?? 0;
}

function removeStep(status: ContainerStatus): Step<"removeContainer"> {
  return { kind: "removeContainer", status };
}

/** Removes all dead init containers except the newest of each name, and those of earlier sandboxes. */
function pruneInit({ spec }: Pod, observed: RuntimePod): readonly Step[] {
  return (spec.initContainers ?? []).flatMap(({ name }) =>
    runsOf(observed, name)
      .filter(({ state }) => isDead(state))
      .filter((run, age) => age > 0 || !isInNewestSandbox(observed, run))
      .map(removeStep),
  );
}

function isDead(state: ContainerState): boolean {
  return state === ContainerState.CONTAINER_EXITED || state === ContainerState.CONTAINER_UNKNOWN;
}

/** Ephemeral containers that have not run yet, as containers; each runs once. One that was created and never started, because graftlet
 *  stopped in between, does not count as run. */
function unstartedEphemeral({ spec }: Pod, observed: RuntimePod): readonly Container[] {
  return (spec.ephemeralContainers ?? [])
    .filter(({ name }) => {
      const run = newestRun(observed, name);
      return !run || run.state === ContainerState.CONTAINER_CREATED;
    })
    .map(({ targetContainerName: _target, ...container }) => container);
}

function succeeded(status: ContainerStatus | undefined): boolean {
  return status?.state === ContainerState.CONTAINER_EXITED && status.exitCode === 0;
}

/** Removes all containers of the pod, init containers after main ones. The container whose exit triggers the restart of all goes last,
 *  so that an interrupted reset resumes. */
function planReset(pod: Pod, observed: RuntimePod): readonly Step[] {
  const { spec } = pod;
  const runsIn = (containers: readonly Container[], asking: boolean) =>
    containers.flatMap((container) =>
      runsOf(observed, container.name).filter(
        ({ state, exitCode }) =>
          asking === (state === ContainerState.CONTAINER_EXITED && restartsAll(container, exitCode)),
      ),
    );
  const init = spec.initContainers ?? [];
  const runs = [
    ...runsIn(spec.containers, false),
    ...runsIn(init, false),
    ...runsIn(spec.containers, true),
    ...runsIn(init, true),
  ];
  return runs.map((status): Step => ({ kind: "resetContainer", status }));
}

/** The decision on one main container; empty for a container that stays terminated. */
interface MainAction {
  readonly keep?: true;
  readonly start?: boolean;
  readonly kill?: PlannedKill;
  readonly resize?: ContainerResize;
  readonly resizePod?: true;
}

/** Plans the main containers of an initialized pod. */
function planMain(pod: Pod, observed: RuntimePod, facts: ContainerFacts) {
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
