import { ContainerState, type ContainerStatus } from "../gen/cri.ts";
import type { Container, EphemeralContainer, Pod } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { restartsAfter, restartsAll, restartsKilled } from "../pod/restart.ts";
import { sandboxIsCurrent } from "../pod/sandbox.ts";
import { nameOf, newestOf } from "./newest.ts";
import { planInit } from "./plan-init.ts";
import { type ContainerResize, planResize, resizesWhole } from "./plan-resize.ts";
import { type Judgement, type PlannedKill, isChanged, killCondemned, killUnknown } from "./planned-kill.ts";

/** What one pass will do to a pod, in this order: kill, take away, change resources, make the sandbox, start ephemeral containers,
 *  init containers, containers. */
export interface Plan {
  /** Stop everything, the sandbox included: it has to be replaced, or nothing is left to run. */
  readonly killPod: boolean;
  readonly createSandbox: boolean;
  /** The sandbox that containers go into; when one is made, the one that it replaces. */
  readonly sandboxId: string | undefined;
  /** Of the sandbox to make, or of the one that is there. */
  readonly attempt: number;
  readonly kill: readonly PlannedKill[];
  /** Every container that the pod has had in its sandbox, to be killed where it has not ended, and removed: the pod starts anew. */
  readonly reset: readonly ContainerStatus[];
  readonly startEphemeral: readonly EphemeralContainer[];
  readonly startInit: readonly Container[];
  readonly start: readonly Container[];
  /** Containers that go on with other resources. */
  readonly resize: readonly ContainerResize[];
  /** The pod as a whole is to have other resources, for itself or for a container that starts anew with others. */
  readonly resizePod: boolean;
}

/** Nobody has anything to say of the containers. */
const unjudged: Judgement = {
  condemnedBy: () => undefined,
  hasStarted: () => false,
  restartAll: false,
  inForce: () => undefined,
  wholeInForce: ({ spec }) => spec.resources,
  groupIsStale: false,
};

/** Decides what makes the runtime's pod equal to its spec. Pure; follows the kubelet's computePodActions.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function planPod(pod: Pod, observed: RuntimePod, given: Partial<Judgement> = {}): Plan {
  const judged = { ...unjudged, ...given };
  const sandbox = judgeSandbox(pod, observed);
  const idle = { kill: [], reset: [], startEphemeral: [], startInit: [], start: [], resize: [], resizePod: false };
  const nothing: Plan = { ...sandbox, ...idle, killPod: sandbox.createSandbox };
  if (judged.restartAll) return { ...nothing, killPod: false, createSandbox: false, reset: resetOrder(pod, observed) };
  if (sandbox.createSandbox) return planNewSandbox(pod, observed, nothing);
  const startEphemeral = (pod.spec.ephemeralContainers ?? []).filter(({ name }) => hasNotRun(newestOf(observed, name)));
  const init = planInit(pod, observed, judged);
  if (init.failed) return { ...nothing, startEphemeral, killPod: true };
  const { resize, resizePod } = init;
  if (!init.initialized)
    return { ...nothing, startEphemeral, kill: init.kill, startInit: init.start, resize, resizePod };
  const main = planMain(pod, observed, judged);
  const killPod = main.keep === 0 && main.start.length === 0;
  return {
    ...nothing,
    killPod,
    kill: [...init.kill, ...main.kill],
    startEphemeral,
    // Sidecars keep no pod alive.
    startInit: killPod ? [] : init.start,
    start: main.start,
    resize: [...resize, ...main.resize],
    resizePod: resizePod || main.resizePod || resizesWhole(pod, judged),
  };
}

/** True when a pass over this pod would change nothing. */
export function isIdle(plan: Plan): boolean {
  const { killPod, createSandbox, kill, reset } = plan;
  return !killPod && !createSandbox && kill.length + reset.length === 0 && !startsAny(plan) && !resizesAny(plan);
}

/** Whether what runs is to have other resources. */
export function resizesAny({ killPod, resize, resizePod }: Plan): boolean {
  return !killPod && (resizePod || resize.length > 0);
}

/** Whether containers are to be started, in the order in which they are. */
export function startsAny({ killPod, createSandbox, startEphemeral, startInit, start }: Plan): boolean {
  if (killPod && !createSandbox) return false;
  return startEphemeral.length + startInit.length + start.length > 0;
}

type SandboxVerdict = Pick<Plan, "createSandbox" | "sandboxId" | "attempt">;

/** Whether the newest sandbox can go on; a replacement counts its attempt on. */
function judgeSandbox(pod: Pod, observed: RuntimePod): SandboxVerdict {
  const newest = observed.sandboxes[0];
  const attempt = newest?.metadata?.attempt ?? 0;
  if (sandboxIsCurrent(pod, observed)) return { createSandbox: false, sandboxId: newest?.id, attempt };
  return { createSandbox: true, sandboxId: newest?.id, attempt: newest ? attempt + 1 : 0 };
}

function planNewSandbox(pod: Pod, observed: RuntimePod, plan: Plan): Plan {
  const policy = pod.spec.restartPolicy ?? "Always";
  const over = { ...plan, createSandbox: false };
  if (policy === "Never" && plan.attempt !== 0 && observed.containers.length > 0) return over;
  const start = pod.spec.containers.filter(
    ({ name, restartPolicy }) => !((restartPolicy ?? policy) === "OnFailure" && succeeded(newestOf(observed, name))),
  );
  const initialized = pod.spec.containers.some(({ name }) => {
    const state = newestOf(observed, name)?.state;
    return state !== undefined && state !== ContainerState.CONTAINER_UNKNOWN;
  });
  if (start.length === 0 && initialized) return over;
  const firstInit = pod.spec.initContainers?.[0];
  return firstInit ? { ...plan, startInit: [firstInit] } : { ...plan, start };
}

function succeeded(status: ContainerStatus | undefined): boolean {
  return status?.state === ContainerState.CONTAINER_EXITED && status.exitCode === 0;
}

/** Whose end asks for the reset goes last, and its trace with it: a reset that was cut off goes on. Init containers go after
 *  the main ones. */
function resetOrder({ spec }: Pod, observed: RuntimePod): readonly ContainerStatus[] {
  const runsOf = (containers: readonly Container[], asking: boolean) =>
    containers.flatMap((container) =>
      observed.containers.filter(
        (run) =>
          nameOf(run) === container.name &&
          asking === (run.state === ContainerState.CONTAINER_EXITED && restartsAll(container, run.exitCode)),
      ),
    );
  const init = spec.initContainers ?? [];
  return [
    ...runsOf(spec.containers, false),
    ...runsOf(init, false),
    ...runsOf(spec.containers, true),
    ...runsOf(init, true),
  ];
}

function planMain(
  pod: Pod,
  observed: RuntimePod,
  judged: Judgement,
): { keep: number } & Pick<Plan, "start" | "kill" | "resize" | "resizePod"> {
  const start: Container[] = [];
  const kill: PlannedKill[] = [];
  const resize: ContainerResize[] = [];
  let resizePod = false;
  let keep = 0;
  for (const container of pod.spec.containers) {
    const status = newestOf(observed, container.name);
    if (status?.state !== ContainerState.CONTAINER_RUNNING) {
      if (!shouldStart(pod, container, status)) continue;
      start.push(container);
      if (status?.state === ContainerState.CONTAINER_UNKNOWN) kill.push(killUnknown("Container", container, status));
    } else if (isChanged(container, status)) {
      start.push(container);
      kill.push({
        containerId: status.id,
        name: container.name,
        message: `Container ${container.name} definition changed, will be restarted`,
      });
    } else {
      const probe = judged.condemnedBy(container.name, status.id);
      if (!probe) {
        const step = planResize(pod, container, status, judged);
        if (step && "kill" in step) {
          kill.push(step.kill);
          start.push(container);
          resizePod = true;
          continue;
        }
        if (step) resize.push(step.resize);
        keep++;
        continue;
      }
      const restarts = restartsKilled(container, pod.spec);
      if (restarts) start.push(container);
      kill.push(killCondemned("Container", container, status, probe, restarts));
    }
  }
  return { keep, start, kill, resize, resizePod };
}

/** An ephemeral container runs once. One that was created and never started is replaced: graftlet ended in between. */
function hasNotRun(status: ContainerStatus | undefined): boolean {
  return !status || status.state === ContainerState.CONTAINER_CREATED;
}

/** Whether a container that is not running should be started, by the restart policy. */
function shouldStart(pod: Pod, container: Container, status: ContainerStatus | undefined): boolean {
  if (pod.metadata.deletionTimestamp) return false;
  if (!status || status.state !== ContainerState.CONTAINER_EXITED) return true;
  return restartsAfter(container, pod.spec, status.exitCode);
}
