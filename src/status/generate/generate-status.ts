import { isIPv6 } from "node:net";
import { PodSandboxState, type ContainerStatus as RuntimeStatus } from "../../gen/cri.ts";
import type { ContainerStatus, Pod, PodCondition, PodStatus, Resources } from "../../objects.ts";
import type { RuntimePod, StatusReader } from "../../pipeline.ts";
import { podConditions } from "../../pod/conditions.ts";
import { type ContainerStatusInput, containerStatuses } from "./container-status.ts";
import { orderPodIPs } from "../../pod/fields.ts";
import { isTerminal, type Phase, podPhase } from "../../pod/phase.ts";
import { qosClass } from "../../pod/qos.ts";
import { containerNameOf, isInNewestSandbox } from "../../pod/runs.ts";
import { minCpuLimitMilli, minCpuRequestMilli } from "./container-resources.ts";
import { quantityMilli } from "../../pod/quantity.ts";
import { isPodLimited, podLimits, podRequests, type ResourceList } from "../../pod/resources.ts";
import { placeholderStatus } from "../../pod/placeholder.ts";
import { amountsOf } from "../../pod/pod-resources.ts";
import type { ResourceStatuses } from "../../resource-manager.ts";
import type { AllocatedPod, DesiredPod } from "../../roles.ts";
import type { ContainerStarts } from "../../state/pod-table.ts";
import type { Column } from "../../state/records.ts";

/** Allocated and actuated resources of pods. */
interface StatusAllocations {
  allocatedPod(pod: DesiredPod): AllocatedPod;
  /** Actuated pod-level resources; undefined if the pod has none. */
  podResources(pod: AllocatedPod): Resources | undefined;
  /** Actuated resources of a running container. */
  containerResources(pod: AllocatedPod, status: RuntimeStatus): Resources;
}

/** Results of containers' probes. */
interface StatusProbes {
  readiness(
    uid: string,
    ...container: Parameters<ContainerStatusInput["readiness"]>
  ): ReturnType<ContainerStatusInput["readiness"]>;
  started(uid: string, ...container: Parameters<ContainerStatusInput["started"]>): boolean | undefined;
}

export interface StatusGeneratorDeps extends Pick<ContainerStatusInput, "stopSignals" | "imageVolumeDigests"> {
  readonly status: StatusReader;
  readonly starts: Pick<Column<ContainerStarts>, "get">;
  readonly resizeConditions: (uid: string) => readonly PodCondition[];
  readonly isPlaceholder: (pod: DesiredPod, observed: RuntimePod) => boolean;
  readonly allocations: StatusAllocations;
  readonly probes: StatusProbes;
  /** Health of a container's resources; undefined if the node does not report it. */
  readonly resourceHealth: ((pod: DesiredPod, containerName: string) => ResourceStatuses) | undefined;
  /** The target's addresses, primary first. */
  readonly hostIPs: () => readonly string[];
  /** The scheme of container IDs, such as `containerd`; undefined while unknown. */
  readonly runtimeName: () => string | undefined;
}

export type StatusGenerator = (desired: DesiredPod, observed: RuntimePod, isTerminating: boolean) => PodStatus;

/** Creates the status generator. */
export function createStatusGenerator(deps: StatusGeneratorDeps): StatusGenerator {
  const { status, starts, resizeConditions, isPlaceholder, allocations, probes, resourceHealth, hostIPs } = deps;
  return (desired, observed, isTerminating) => {
    const { uid } = desired.metadata;
    if (isPlaceholder(desired, observed)) return placeholderStatus(desired, hostIPs());
    const pod = allocations.allocatedPod(desired);
    return generateStatus({
      pod,
      resize: resizeConditions(uid),
      actualPodResources: pod.spec.resources && allocations.podResources(pod),
      actualResources: (run) => amountsOf(allocations.containerResources(pod, run)),
      observed,
      isTerminating,
      previous: status.get(uid),
      failures: starts.get(uid)?.failures ?? new Map(),
      readiness: (name, id) => probes.readiness(uid, name, id),
      started: (name, id) => probes.started(uid, name, id),
      resourceHealth: resourceHealth && ((name) => resourceHealth(desired, name)),
      stopSignals: deps.stopSignals,
      imageVolumeDigests: deps.imageVolumeDigests,
      hostIPs: hostIPs(),
      runtimeName: deps.runtimeName() ?? "",
    });
  };
}

export interface PodStatusInput extends ContainerStatusInput {
  /** The target's addresses, primary first. */
  readonly hostIPs: readonly string[];
  /** The pod is terminating: stopped containers are not restarted. */
  readonly isTerminating: boolean;
  /** Actual CPU and memory at pod level; undefined without pod-level resources. */
  readonly actualPodResources: Resources | undefined;
  readonly resize: readonly PodCondition[];
}

/** Generates a pod's status from the runtime's state and the previous status. Pure; the status manager adds times and the start time.
 *  Final phases are kept.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function generateStatus(input: PodStatusInput): PodStatus {
  const { pod, previous = pod.status } = input;
  const known = { ...input, previous };
  const main = containerStatuses("containers", known);
  const init = containerStatuses("initContainers", known);
  const ephemeral = containerStatuses("ephemeralContainers", known);
  const statuses = [...init, ...main];
  const phase = stickyPhase(known, statuses);
  return {
    phase,
    ...(phase === previous?.phase && phaseReason(pod, previous)),
    conditions: podConditions({ ...input, previous, statuses, phase }),
    qosClass: pod.status?.qosClass ?? qosClass(pod.spec),
    ...podLevelResources(pod, phase === "Running" ? (input.actualPodResources ?? {}) : undefined),
    ...addresses(known),
    ...(init.length > 0 && { initContainerStatuses: init }),
    containerStatuses: main,
    ...(ephemeral.length > 0 && { ephemeralContainerStatuses: ephemeral }),
  };
}

/** Returns the pod's phase. A final phase is kept; the API server's takes precedence. */
function stickyPhase(
  { pod, observed, previous, isTerminating }: PodStatusInput,
  statuses: readonly ContainerStatus[],
): Phase {
  const phase = podPhase({ pod, statuses, isTerminating, initialized: mainContainerInSandbox(pod, observed) });
  const final = [pod.status?.phase, isTerminal(phase) ? phase : previous?.phase].find(isTerminal);
  return (final as Phase | undefined) ?? phase;
}

function mainContainerInSandbox({ spec }: Pod, observed: RuntimePod | undefined): boolean {
  if (!observed) return false;
  const names = new Set(spec.containers.map(({ name }) => name));
  return observed.containers.some((run) => names.has(containerNameOf(run)) && isInNewestSandbox(observed, run));
}

/** Returns reason and message, which belong to the phase and are kept with it. */
function phaseReason(pod: Pod, previous: PodStatus): Pick<PodStatus, "reason" | "message"> {
  const reason = previous.reason || pod.status?.reason;
  const message = previous.message || pod.status?.message;
  return { ...(reason && { reason }), ...(message && { message }) };
}

/** Returns the addresses of the host and of the pod: one per family, the host's primary family first. A hostNetwork pod has the
 *  host's addresses. The last known addresses are kept while no sandbox is ready, or the host's are unknown. */
function addresses(input: PodStatusInput): Pick<PodStatus, "hostIP" | "hostIPs" | "podIP" | "podIPs"> {
  const { pod, hostIPs } = input;
  const hosts = hostIPs.slice(0, 2);
  const pods = pod.spec.hostNetwork ? hostNetworkIPs(input, hosts) : podNetworkIPs(input, hosts);
  return {
    ...(hosts[0] !== undefined && { hostIP: hosts[0], hostIPs: hosts.map((ip) => ({ ip })) }),
    ...(pods[0] !== undefined && { podIP: pods[0], podIPs: pods.map((ip) => ({ ip })) }),
  };
}

/** Returns the addresses that the runtime reports for a hostNetwork pod, completed by the host's second address. If it reports
 *  none, these are the host's current addresses, which may have changed since the pod started. */
function hostNetworkIPs({ observed, previous }: PodStatusInput, hosts: readonly string[]): readonly string[] {
  const [primary, secondary] = orderPodIPs(observed?.ips ?? [], hosts);
  if (primary === undefined) return hosts.length > 0 ? hosts : shownIPs(previous);
  const other = secondary ?? hosts[1];
  return other !== undefined && isIPv6(other) !== isIPv6(primary) ? [primary, other] : [primary];
}

function podNetworkIPs({ observed, previous }: PodStatusInput, hosts: readonly string[]): readonly string[] {
  const ready = observed?.sandboxes.some(({ state }) => state === PodSandboxState.SANDBOX_READY);
  return orderPodIPs(observed?.ips.length || ready ? (observed?.ips ?? []) : shownIPs(previous), hosts);
}

function shownIPs(previous: PodStatus | undefined): readonly string[] {
  return previous?.podIPs?.flatMap(({ ip }) => (ip ? [ip] : [])) ?? [];
}

/** Returns the pod-level resources for a status: allocated, and actual. A pod without pod-level resources gets the sums of its
 *  containers.
 *  @param inForce actual CPU and memory while the pod runs, as far as they may differ from the allocation; undefined for a pod
 *  that does not run.
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-pod-resources/ */
function podLevelResources(
  pod: Pod,
  inForce: Resources | undefined,
): Pick<PodStatus, "resources" | "allocatedResources"> {
  const [requests, limits] = [podRequests(pod, { overhead: true }), podLimits(pod, { overhead: true })];
  const shown = inForce ? shownWhileRunning(pod, inForce, { requests, limits }) : { requests, limits };
  return {
    resources: {
      ...(isNonEmpty(shown.requests) && { requests: shown.requests }),
      ...(isNonEmpty(shown.limits) && { limits: shown.limits }),
    },
    ...(isNonEmpty(requests) && { allocatedResources: requests }),
  };
}

type PodLevelAmounts = Readonly<Record<"requests" | "limits", ResourceList>>;

/** Returns the pod-level amounts of the spec, completed by those of the pod's cgroup. */
function shownWhileRunning(pod: Pod, inForce: Resources, total: PodLevelAmounts): PodLevelAmounts {
  const own = pod.spec.resources;
  const isReported = (amount: string | undefined, least: number) =>
    amount !== undefined && quantityMilli(amount) > least;
  const { cpu, memory } = total.requests;
  const requests = {
    ...(isReported(cpu, minCpuRequestMilli) && { cpu }),
    ...(memory !== undefined && { memory }),
    ...own?.requests,
    ...inForce.requests,
  };
  const limits = {
    ...(isPodLimited(pod, "cpu") && isReported(total.limits["cpu"], minCpuLimitMilli) && { cpu: total.limits["cpu"] }),
    ...(isPodLimited(pod, "memory") && { memory: total.limits["memory"] }),
    ...own?.limits,
    ...inForce.limits,
  };
  return { requests: present(requests), limits: present(limits) };
}

function present(amounts: Readonly<Record<string, string | undefined>>): ResourceList {
  return Object.fromEntries(Object.entries(amounts).flatMap(([name, amount]) => (amount ? [[name, amount]] : [])));
}

function isNonEmpty(amounts: ResourceList): boolean {
  return Object.keys(amounts).length > 0;
}
