import { type ContainerStatus, ContainerState } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";
import type { CondemningProbe, RuntimePod } from "../pipeline.ts";
import { containerHash } from "../pod/hash.ts";
import { containerHashAnnotation, containerNameLabel } from "../pod/labels.ts";
import { sandboxIsCurrent } from "../pod/sandbox.ts";

export interface PlannedKill {
  readonly containerId: string;
  readonly name: string;
  /** Text of the Killing event. */
  readonly message: string;
  /** In place of the pod's own grace period. */
  readonly graceSeconds?: number | undefined;
}

/** The probe by whose verdict a container is to be killed. */
export type CondemnedBy = (containerName: string, containerId: string) => CondemningProbe | undefined;

/** What one pass will do to a pod, in this order: kill, make the sandbox, start init containers, start containers. */
export interface Plan {
  /** Stop everything, the sandbox included: it has to be replaced, or nothing is left to run. */
  readonly killPod: boolean;
  readonly createSandbox: boolean;
  /** The sandbox that containers go into; when one is made, the one that it replaces. */
  readonly sandboxId: string | undefined;
  /** Of the sandbox to make, or of the one that is there. */
  readonly attempt: number;
  readonly kill: readonly PlannedKill[];
  readonly startInit: readonly Container[];
  readonly start: readonly Container[];
}

/** Decides what makes the runtime's pod equal to its spec. Pure; follows the kubelet's computePodActions.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function planPod(pod: Pod, observed: RuntimePod, condemnedBy: CondemnedBy = () => undefined): Plan {
  const sandbox = judgeSandbox(pod, observed);
  const nothing = { ...sandbox, killPod: sandbox.createSandbox, kill: [], startInit: [], start: [] };
  if (sandbox.createSandbox) return planNewSandbox(pod, observed, nothing);
  const init = planInit(pod, observed);
  if (init.failed) return { ...nothing, killPod: true };
  if (!init.initialized) return { ...nothing, kill: init.kill, startInit: init.start };
  const main = planMain(pod, observed, condemnedBy);
  return {
    ...nothing,
    killPod: main.keep === 0 && main.start.length === 0,
    kill: [...init.kill, ...main.kill],
    startInit: init.start,
    start: main.start,
  };
}

/** True when a pass over this pod would change nothing. */
export function isIdle(plan: Plan): boolean {
  return !plan.killPod && !plan.createSandbox && plan.kill.length + plan.startInit.length + plan.start.length === 0;
}

/** The newest status of a container by name. */
export function newestOf(observed: RuntimePod, name: string): ContainerStatus | undefined {
  return observed.containers.find((status) => nameOf(status) === name);
}

/** The name that the pod spec gives a container. */
export function nameOf(status: ContainerStatus): string {
  return status.labels[containerNameLabel] ?? status.metadata?.name ?? "";
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
    (container) => !(policy === "OnFailure" && succeeded(newestOf(observed, container.name))),
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

interface InitVerdict {
  readonly initialized: boolean;
  readonly failed: boolean;
  readonly start: readonly Container[];
  readonly kill: readonly PlannedKill[];
}

/** Init containers run one after another. The last that has a status decides, since older ones may have been removed. */
function planInit(pod: Pod, observed: RuntimePod): InitVerdict {
  const init = pod.spec.initContainers ?? [];
  const verdict = { initialized: false, failed: false, start: [], kill: [] };
  if (init.length === 0 || mainHasRun(pod, observed)) return { ...verdict, initialized: true };
  for (let index = init.length - 1; index >= 0; index--) {
    const container = init[index];
    const status = container && newestOf(observed, container.name);
    if (!container || !status) continue;
    if (status.state === ContainerState.CONTAINER_RUNNING) return verdict;
    if (status.state === ContainerState.CONTAINER_CREATED) return { ...verdict, start: [container] };
    if (succeeded(status) && status.reason !== "OOMKilled") {
      const next = init[index + 1];
      return next ? { ...verdict, start: [next] } : { ...verdict, initialized: true };
    }
    if (pod.spec.restartPolicy === "Never") return { ...verdict, failed: true };
    const kill =
      status.state === ContainerState.CONTAINER_UNKNOWN ? [killUnknown("Init container", container, status)] : [];
    return { ...verdict, start: [container], kill };
  }
  return { ...verdict, start: init.slice(0, 1) };
}

/** Exited main containers prove nothing: after a reboot they belong to an earlier sandbox. */
function mainHasRun(pod: Pod, observed: RuntimePod): boolean {
  return pod.spec.containers.some(({ name }) => {
    const state = newestOf(observed, name)?.state;
    return state === ContainerState.CONTAINER_CREATED || state === ContainerState.CONTAINER_RUNNING;
  });
}

function planMain(
  pod: Pod,
  observed: RuntimePod,
  condemnedBy: CondemnedBy,
): { keep: number; start: readonly Container[]; kill: readonly PlannedKill[] } {
  const start: Container[] = [];
  const kill: PlannedKill[] = [];
  let keep = 0;
  for (const container of pod.spec.containers) {
    const status = newestOf(observed, container.name);
    if (status?.state !== ContainerState.CONTAINER_RUNNING) {
      if (!shouldStart(pod, status)) continue;
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
      const probe = condemnedBy(container.name, status.id);
      if (!probe) {
        keep++;
        continue;
      }
      if (pod.spec.restartPolicy !== "Never") start.push(container);
      kill.push(killCondemned(pod, container, status, probe));
    }
  }
  return { keep, start, kill };
}

/** @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#container-probes */
function killCondemned(
  { spec }: Pod,
  container: Container,
  { id }: ContainerStatus,
  probe: CondemningProbe,
): PlannedKill {
  const { terminationGracePeriodSeconds: graceSeconds } = container[`${probe}Probe`] ?? {};
  const after = spec.restartPolicy === "Never" ? "" : ", will be restarted";
  const message = `Container ${container.name} failed ${probe} probe${after}`;
  return { containerId: id, name: container.name, message, graceSeconds };
}

/** Whether a container that is not running should be started, by the pod's restart policy. */
function shouldStart(pod: Pod, status: ContainerStatus | undefined): boolean {
  if (pod.metadata.deletionTimestamp) return false;
  if (!status || status.state !== ContainerState.CONTAINER_EXITED) return true;
  if (pod.spec.restartPolicy === "Never") return false;
  return pod.spec.restartPolicy !== "OnFailure" || status.exitCode !== 0;
}

/** A container made without our hash annotation (by another tool) is left alone. */
function isChanged(container: Container, status: ContainerStatus): boolean {
  const hash = status.annotations[containerHashAnnotation];
  return hash !== undefined && hash !== containerHash(container);
}

function killUnknown(what: string, container: Container, status: ContainerStatus): PlannedKill {
  return {
    containerId: status.id,
    name: container.name,
    message: `${what} is in "unknown" state, try killing it before restart`,
  };
}
