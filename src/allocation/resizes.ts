import type { ResizeDecider, Resizes } from "../sync/ports.ts";
import { ContainerState } from "../gen/cri.ts";
import type { ClockAndLog } from "../lib/log.ts";
import type { Container, Pod, PodCondition, Resources } from "../objects.ts";
import type { Admission, EventSink, PodStore, RuntimePod } from "../pipeline.ts";
import { isResizeCondition } from "../pod/conditions.ts";
import { isSidecar } from "../pod/containers.ts";
import { isEnding } from "../pod/phase.ts";
import { qosClass } from "../pod/qos.ts";
import { quantityMilli, quantityNumber } from "../pod/quantity.ts";
import { podReference } from "../pod/reference.ts";
import { newestRun } from "../pod/runs.ts";
import { changesSwapLimit } from "../pod/swap.ts";
import { amountsOf, effectiveResources, resourcesOf, sameAmounts, withResources } from "../pod/pod-resources.ts";
import { type DesiredPod, type AllocatedPod, allocatedPod } from "../roles.ts";
import type { ResizeState } from "../state/pod-table.ts";
import type { ColumnWriter, PrivateColumn } from "../state/records.ts";
import type { Sends, ResizeTrigger } from "../state/signals.ts";
import type { SourceMilestone } from "../state/values.ts";
import type { Allocations } from "./allocations.ts";
import { type ResizeRequestMeasures, createRequestTracker } from "./requested-resources.ts";
import { type ResizeStates, createResizeStates, type PendingResize } from "./resize-states.ts";
import { sortedByKey } from "../lib/sorted.ts";
import { podRequests } from "../pod/resources.ts";
import { goJson } from "../pod/hash.ts";

/** In-place resizes of pods. */
export interface ResizeMeasures extends ResizeRequestMeasures {
  /** Counts an infeasible resize. */
  infeasible(
    detail:
      | "swap_limitation"
      | "guaranteed_pod_cpu_manager_static_policy"
      | "guaranteed_pod_memory_manager_static_policy",
  ): void;
  /** Counts a deferred resize that was accepted. */
  accepted(trigger: ResizeTrigger): void;
}

export interface ResizesDeps extends ClockAndLog {
  readonly allocations: Allocations;
  readonly desired: PodStore;
  readonly admission: Admission;
  readonly events: EventSink;
  /** True if containers may use the target's swap, with a limit. */
  usesSwap(signal: AbortSignal): Promise<boolean>;
  /** The CPU manager's policy is static: CPUs of Guaranteed pods cannot be resized. */
  readonly hasStaticCpus: boolean;
  /** The memory manager's policy is Static: memory of Guaranteed pods cannot be resized. */
  readonly hasStaticMemory: boolean;
  readonly measures: ResizeMeasures;
  /** Sources that have reported: before all have, the resources held by pods are not known. */
  readonly sourcesReady: Pick<SourceMilestone, "all">;
  /** `retryPendingResizes` is sent when pods hold fewer resources: a pending resize may fit. */
  readonly signals: Sends<"retryPendingResizes">;
  /** Column written by the resize manager. */
  readonly resize: ColumnWriter<ResizeState>;
  readonly privateColumn: PrivateColumn;
}

/** Creates the resize manager, which works like the kubelet's: a request is admitted against the allocations of other pods; if it fits, it
 *  is allocated, otherwise it is deferred and retried whenever resources become free. An infeasible resize is not retried.
 *  (kubelet, allocation/allocation_manager.go)
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export function createResizes(deps: ResizesDeps): Resizes & ResizeDecider {
  const { allocations, desired, privateColumn, measures, log } = deps;
  /** Pods with a resize that has not been decided, or that is deferred. */
  const pendingResizes = privateColumn<true>();
  const requests = createRequestTracker(privateColumn, measures);
  const states = createResizeStates(deps.resize, deps.clock);

  const retryPending = async (active: () => readonly DesiredPod[], trigger: ResizeTrigger, signal: AbortSignal) => {
    const waiting = pendingResizes.entries();
    if (waiting.length === 0 || !deps.sourcesReady.all()) return [];
    const wanted = new Map(
      waiting
        .flatMap(([uid]) => desired.get(uid) ?? [])
        .filter((pod) => !isEnding(pod))
        .map((pod) => [pod.metadata.uid, pod]),
    );
    for (const [uid] of waiting) if (!wanted.has(uid)) pendingResizes.delete(uid);
    const known = [...wanted.values()];
    const changedPods: string[] = [];
    for (const pod of sortResizes(known, allocations.allocatedPod, states.deferredSince)) {
      const { uid } = pod.metadata;
      try {
        const waited = states.deferredSince(uid) !== undefined;
        const decision = await decideResize(deps, states, { pod, active: active() }, signal);
        if (decision.decided) pendingResizes.delete(uid);
        if (decision.changed) changedPods.push(uid);
        if (waited && decision.allocated) measures.accepted(trigger);
      } catch (error) {
        signal.throwIfAborted();
        log.warn({ err: error, uid }, "cannot decide on a resize; retrying");
      }
    }
    return changedPods;
  };

  return {
    allocatedPod: allocations.allocatedPod,
    effectivePod: allocations.effectivePod,
    actuatedPod: (pod, observed) => actuatedPodOf(allocations, pod, observed),
    addPod(pod) {
      allocations.addPod(pod);
      states.restore(pod.metadata.uid, resizeConditionsOf(pod));
    },
    recordRequest(pod) {
      const { uid } = pod.metadata;
      if (!requests.record(pod)) return false;
      if (!allocations.matchesRequest(pod)) {
        pendingResizes.set(uid, true);
        return true;
      }
      // A pending resize has been reverted.
      pendingResizes.delete(uid);
      states.clearPending(uid);
      return false;
    },
    retryPending,
    checkProgress: (pod, observed) => recordProgress(deps, states, pod, observed),
    actuationFailed(pod, message) {
      const { uid, generation = 0 } = pod.metadata;
      const since = states.markFailed(uid, message, generation);
      if (since !== undefined) emitEvent(deps, pod, "ResizeError", resizeText("Pod resize error", pod, since, message));
    },
  };
}

interface ResizeDecision {
  /** The resize is decided and need not be retried. */
  readonly decided: boolean;
  /** The pod's allocation or resize status has changed. */
  readonly changed: boolean;
  readonly allocated?: true;
}

async function decideResize(
  deps: ResizesDeps,
  states: ResizeStates,
  { pod, active }: { readonly pod: DesiredPod; readonly active: readonly DesiredPod[] },
  signal: AbortSignal,
): Promise<ResizeDecision> {
  const { allocations } = deps;
  const { uid, generation = 0 } = pod.metadata;
  // The pod may have been preempted for another pod's resize.
  if (!active.some(({ metadata }) => metadata.uid === uid)) return { decided: true, changed: false };
  if (allocations.matchesRequest(pod)) return { decided: true, changed: states.clearPending(uid) };
  const obstacle = await infeasibility(deps, pod, signal);
  if (obstacle) {
    deps.measures.infeasible(obstacle.detail);
    const why = { reason: "Infeasible", message: obstacle.message } as const;
    return { decided: true, changed: await markPending(deps, states, pod, why, why.reason) };
  }
  const others = active.filter(({ metadata }) => metadata.uid !== uid).map(allocations.effectivePod);
  // Admitted as if its request were allocated already.
  const refusal = await deps.admission.admit(allocatedPod(pod), others, signal);
  if (refusal) {
    const { reason, message } = refusal;
    return { decided: false, changed: await markPending(deps, states, pod, { reason: "Deferred", message }, reason) };
  }
  await allocations.allocate(pod);
  states.clearPending(uid);
  states.markAllocated(uid, generation);
  emitEvent(deps, pod, "ResizeStarted", resizeText("Pod resize started", pod, generation));
  return { decided: true, changed: true, allocated: true };
}

/** Returns why a resize can never be done; undefined if it can. */
async function infeasibility(
  { allocations, usesSwap, hasStaticCpus, hasStaticMemory }: ResizesDeps,
  pod: DesiredPod,
  signal: AbortSignal,
): Promise<{ readonly detail: Parameters<ResizeMeasures["infeasible"]>[0]; readonly message: string } | undefined> {
  const allocated = allocations.allocatedPod(pod);
  if (changesSwapLimit(pod, allocated) && (await usesSwap(signal)))
    return { detail: "swap_limitation", message: "In-place resize of containers with swap is not supported." };
  if (qosClass(pod.spec) !== "Guaranteed") return undefined;
  if (hasStaticCpus && changesRequest(pod, allocated, "cpu"))
    return {
      detail: "guaranteed_pod_cpu_manager_static_policy",
      message: 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
    };
  if (hasStaticMemory && changesRequest(pod, allocated, "memory"))
    return {
      detail: "guaranteed_pod_memory_manager_static_policy",
      message: 'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"',
    };
  return undefined;
}

/** True if the request of a container or sidecar changes. */
function changesRequest(pod: DesiredPod, allocated: AllocatedPod, resource: "cpu" | "memory"): boolean {
  const before = resourcesOf(allocated.spec).containers;
  const amountOf = ({ requests, limits }: Resources = {}) =>
    quantityMilli(requests?.[resource] ?? limits?.[resource] ?? "0");
  return resizableContainers(pod).some(({ name, resources }) => amountOf(resources) !== amountOf(before[name]));
}

function resizableContainers({ spec: { containers, initContainers = [] } }: Pod): readonly Container[] {
  return [...containers, ...initContainers.filter(isSidecar)];
}

/** Marks a resize as pending, and checkpoints the pod's allocation. @param refusal rejection by the admission, whose reason, such as
 *  `OutOfcpu`, is shown in the event. (kubelet, handlePodResourcesResize) @returns true if the resize status has changed. */
async function markPending(
  deps: ResizesDeps,
  states: ResizeStates,
  pod: DesiredPod,
  why: Pick<PendingResize, "reason" | "message">,
  refusal: string,
): Promise<boolean> {
  const { uid, generation = 0 } = pod.metadata;
  // After a restart, graftlet would otherwise take the current request as the allocation.
  await deps.allocations.checkpoint(pod);
  const change = states.markPending(uid, why, generation);
  if (change === "news")
    emitEvent(deps, pod, `Resize${why.reason}`, resizeText(`Pod resize ${refusal}`, pod, generation, why.message));
  return change !== undefined;
}

/** Records whether the allocation has been actuated. */
function recordProgress(deps: ResizesDeps, states: ResizeStates, pod: AllocatedPod, observed: RuntimePod): void {
  const { uid, generation = 0 } = pod.metadata;
  if (inProgress(deps.allocations, pod, observed)) return states.markInProgress(uid, generation);
  const done = states.markCompleted(uid);
  if (done === undefined) return;
  emitEvent(deps, pod, "ResizeCompleted", resizeText("Pod resize completed", pod, done));
  deps.signals.retryPendingResizes.send("pod_resized");
}

function emitEvent({ events }: ResizesDeps, pod: DesiredPod | AllocatedPod, reason: string, text: string): void {
  const type = reason === "ResizeStarted" || reason === "ResizeCompleted" ? "Normal" : "Warning";
  events.event(podReference(pod), type, reason, text);
}

function resizeConditionsOf({ status }: DesiredPod): readonly PodCondition[] {
  return (status?.conditions ?? []).filter(isResizeCondition);
}

/** True while the actuated resources of a running container differ from the allocation; containers that are not running get the
 *  allocation when they start. */
function inProgress(allocations: Allocations, pod: AllocatedPod, observed: RuntimePod): boolean {
  const { spec } = pod;
  const differs = (container: Container) => {
    const run = runningContainer(observed, container);
    if (!run) return false;
    const wanted = amountsOf(effectiveResources(container.resources, spec.resources));
    return !sameAmounts(wanted, amountsOf(allocations.containerResources(pod, run)));
  };
  const whole = allocations.podResources(pod);
  return (
    resizableContainers(pod).some(differs) || !sameAmounts(amountsOf(spec.resources ?? {}), amountsOf(whole ?? {}))
  );
}

function actuatedPodOf(allocations: Allocations, pod: AllocatedPod, observed: RuntimePod): AllocatedPod {
  const { containers, initContainers = [] } = pod.spec;
  const each = [...initContainers, ...containers].flatMap((container) => {
    const run = runningContainer(observed, container);
    return run ? [[container.name, allocations.containerResources(pod, run)] as const] : [];
  });
  const whole = allocations.podResources(pod);
  return allocatedPod(withResources(pod, { containers: Object.fromEntries(each), ...(whole && { pod: whole }) }));
}

/** The newest container of a name, if it is running. */
function runningContainer(observed: RuntimePod, { name }: Container) {
  const newest = newestRun(observed, name);
  return newest?.state === ContainerState.CONTAINER_RUNNING ? newest : undefined;
}

/** Text of a resize event, in the kubelet's format.
 *  @param generation of the spec that requested it. @param error why it is pending or has failed. */
function resizeText(what: string, { spec }: Pod, generation: number, error?: string): string {
  const { containers, initContainers = [] } = spec;
  const summary = {
    ...(initContainers.length > 0 && { initContainers: initContainers.map(amounts) }),
    containers: containers.map(amounts),
    generation,
    ...(error && { error }),
  };
  return `${what}: ${goJson(summary)}`;
}

function amounts({ name, resources }: Container) {
  const { limits, requests } = resources ?? {};
  return {
    name,
    resources: { ...(limits && { limits: sortedByKey(limits) }), ...(requests && { requests: sortedByKey(requests) }) },
  };
}

/** Sorts pending resizes in the order in which they are decided: first pods that request no more than their allocation, then by priority,
 *  QoS class (Guaranteed first) and waiting time. (kubelet, allocation/allocation_manager.go)
 *  @param allocatedPodOf returns the allocated pod. @param deferredSince milliseconds since the epoch; undefined for a new resize. */
function sortResizes(
  pods: readonly DesiredPod[],
  allocatedPodOf: (pod: DesiredPod) => AllocatedPod,
  deferredSince: (uid: string) => number | undefined,
): readonly DesiredPod[] {
  const ranks = new Map(pods.map((pod) => [pod, rankOf(pod, allocatedPodOf(pod), deferredSince(pod.metadata.uid))]));
  return [...pods].sort((a, b) => compare(ranks.get(a) ?? [], ranks.get(b) ?? []));
}

function rankOf(pod: DesiredPod, before: AllocatedPod, since: number | undefined): readonly number[] {
  return [
    requestsMore(pod, before) ? 1 : 0,
    -(pod.spec.priority ?? 0),
    qosClass(pod.spec) === "Guaranteed" ? 0 : 1,
    since ?? Number.MAX_SAFE_INTEGER,
  ];
}

function requestsMore(pod: DesiredPod, before: AllocatedPod): boolean {
  const [now, then] = [podRequests(pod, { overhead: false }), podRequests(before, { overhead: false })];
  return (
    quantityMilli(now["cpu"] ?? "0") > quantityMilli(then["cpu"] ?? "0") ||
    quantityNumber(now["memory"] ?? "0") > quantityNumber(then["memory"] ?? "0")
  );
}

function compare(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((value, index) => value !== b[index]);
  return at < 0 ? 0 : (a[at] ?? 0) - (b[at] ?? 0);
}
