import type { Container, ContainerStatus, Pod, PodCondition, PodStatus } from "../objects.ts";
import type { RuntimePod } from "../pipeline.ts";
import { isSidecar } from "./containers.ts";
import { isTerminal } from "./phase.ts";
import { mayRestartAll } from "./restart.ts";
import { shouldRestartAll, allRestartingCondition, allContainersRemoved } from "./restart-all.ts";
import { sandboxIsCurrent } from "./sandbox.ts";

/** Condition types that only the kubelet writes. */
const kubeletConditions: ReadonlySet<string> = new Set([
  "PodScheduled",
  "Ready",
  "Initialized",
  "ContainersReady",
  "PodReadyToStartContainers",
  "PodResizeInProgress",
  "PodResizePending",
  allRestartingCondition,
]);

export function isKubeletCondition(type: string): boolean {
  return kubeletConditions.has(type);
}

/** True for the two conditions of an in-place resize. */
export function isResizeCondition({ type }: Pick<PodCondition, "type">): boolean {
  return type === "PodResizePending" || type === "PodResizeInProgress";
}

/** Condition DisruptionTarget: the pod is terminated by a disruption. Other components set it, too. */
export const disruptionCondition = "DisruptionTarget";
const terminationByKubelet = "TerminationByKubelet";

/** The DisruptionTarget condition of a pod that its node terminates. */
export function disruption({ metadata: { generation } }: Pod, message: string): PodCondition {
  return {
    type: disruptionCondition,
    ...(generation !== undefined && { observedGeneration: generation }),
    status: "True",
    reason: terminationByKubelet,
    message,
  };
}

/** True for a DisruptionTarget condition with the kubelet's reason. */
export function isOwnDisruption({ type, reason }: PodCondition): boolean {
  return type === disruptionCondition && reason === terminationByKubelet;
}

export interface ConditionsInput {
  readonly pod: Pod;
  readonly observed: RuntimePod | undefined;
  readonly previous: PodStatus | undefined;
  /** Statuses of init and main containers. */
  readonly statuses: readonly ContainerStatus[];
  readonly phase: string | undefined;
  readonly resize: readonly PodCondition[];
}

/** Status of a condition; the status manager sets its times. */
type ConditionStatus = Pick<PodCondition, "status" | "reason" | "message">;

const isTrue: ConditionStatus = { status: "True" };

/** A pod's conditions: those of other components first, as the API server shows them, then the kubelet's own.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-conditions */
export function podConditions(input: ConditionsInput): PodCondition[] {
  const { pod, observed } = input;
  const foreign = (pod.status?.conditions ?? []).filter(({ type }) => !isKubeletCondition(type));
  const containersReady = containersReadyStatus(input);
  const own: readonly (readonly [string, ConditionStatus])[] = [
    ["PodReadyToStartContainers", sandboxIsCurrent(pod, observed) ? isTrue : { status: "False" }],
    ["Initialized", initializedStatus(input)],
    ["Ready", containersReady.status === "True" ? readinessGatesStatus(pod, foreign) : containersReady],
    ["ContainersReady", containersReady],
    ["PodScheduled", isTrue],
  ];
  const { generation } = pod.metadata;
  const observedGeneration = generation !== undefined && { observedGeneration: generation };
  return [
    ...foreign,
    ...(isTerminal(input.phase) ? [] : input.resize),
    ...own.map(([type, verdict]) => ({ type, ...observedGeneration, ...verdict })),
    // Like the kubelet's, without observedGeneration.
    ...(mayRestartAll(pod.spec) ? [{ type: allRestartingCondition, ...allRestartingStatus(input) }] : []),
  ];
}

/** Ready and ContainersReady in a final phase. */
export function terminalReadiness(phase: string): ConditionStatus {
  return { status: "False", reason: phase === "Failed" ? "PodFailed" : "PodCompleted" };
}

function containersReadyStatus({ pod, statuses, phase }: ConditionsInput): ConditionStatus {
  if (isTerminal(phase)) return terminalReadiness(phase);
  const sidecars = (pod.spec.initContainers ?? []).filter(isSidecar);
  const unready = [...sidecars, ...pod.spec.containers].filter(({ name }) => !containerStatusOf(statuses, name)?.ready);
  if (unready.length === 0) return isTrue;
  return {
    status: "False",
    reason: "ContainersNotReady",
    message: `containers with unready status: ${nameList(unready)}`,
  };
}

function readinessGatesStatus(pod: Pod, conditions: readonly PodCondition[]): ConditionStatus {
  const problems = (pod.spec.readinessGates ?? []).flatMap(({ conditionType }) => {
    const condition = conditions.find(({ type }) => type === conditionType);
    if (!condition) return [`corresponding condition of pod readiness gate "${conditionType}" does not exist.`];
    if (condition.status === "True") return [];
    return [`the status of pod readiness gate "${conditionType}" is not "True", but ${condition.status}`];
  });
  return problems.length === 0
    ? isTrue
    : { status: "False", reason: "ReadinessGatesNotReady", message: problems.join(", ") };
}

/** True from the exit of the container that triggers the restart until all of the pod's containers are removed. */
function allRestartingStatus({ pod, observed, previous, phase }: ConditionsInput): ConditionStatus {
  if (isTerminal(phase)) return terminalReadiness(phase);
  if (!shouldRestartAll(pod, observed, previous) || allContainersRemoved(pod, observed)) return { status: "False" };
  return {
    status: "True",
    reason: "RestartAllContainersStarted",
    message: "container exited with restart policy rule",
  };
}

/** Once a main container has started, or the condition has been True, the pod stays initialized. */
function initializedStatus({ pod, statuses, phase, previous }: ConditionsInput): ConditionStatus {
  if (phase === "Succeeded") return { status: "True", reason: "PodCompleted" };
  const hasStarted = ({ name }: Container) => {
    const state = containerStatusOf(statuses, name)?.state;
    return state?.running !== undefined || state?.terminated !== undefined;
  };
  if (pod.spec.containers.some(hasStarted)) return isTrue;
  const incomplete = (pod.spec.initContainers ?? []).filter((container) => {
    const status = containerStatusOf(statuses, container.name);
    return !(isSidecar(container) ? status?.started : status?.ready);
  });
  const before = previous?.conditions?.some(({ type, status }) => type === "Initialized" && status === "True");
  if (incomplete.length === 0 || before) return isTrue;
  return {
    status: "False",
    reason: "ContainersNotInitialized",
    message: `containers with incomplete status: ${nameList(incomplete)}`,
  };
}

function containerStatusOf(statuses: readonly ContainerStatus[], name: string): ContainerStatus | undefined {
  return statuses.find((status) => status.name === name);
}

function nameList(containers: readonly Container[]): string {
  return `[${containers.map(({ name }) => name).join(" ")}]`;
}
