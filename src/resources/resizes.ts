import { ContainerState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { ResizeMeasures } from "../measures.ts";
import type { Container, PodCondition } from "../objects.ts";
import type { Admission, EventSink, PodStore, RuntimePod } from "../pipeline.ts";
import { isResizeCondition } from "../pod/conditions.ts";
import { isSidecar } from "../pod/containers.ts";
import { isEnding } from "../pod/phase.ts";
import { podReference } from "../pod/reference.ts";
import { newestRun } from "../pod/runs.ts";
import { resizesSwap } from "../pod/swap.ts";
import { type PodResources, amountsOf, effectiveResources, sameAmounts, withResources } from "../pod/resize.ts";
import type { PendingResize, ResizeDecider, ResizeState, ResizeTrigger, Resizes } from "../resizes.ts";
import { type AskedPod, type GivenPod, givenPod } from "../roles.ts";
import type { ColumnWriter } from "../state/rows.ts";
import type { Sends } from "../state/signals.ts";
import type { SourceMarks } from "../state/cells.ts";
import type { Allocations } from "./allocations.ts";
import { createWishes } from "./resize-changes.ts";
import { resizeText } from "./resize-text.ts";
import { type ResizeStates, createResizeStates } from "./resize-states.ts";
import { inOrder } from "./resize-order.ts";

export interface ResizesDeps {
  readonly allocations: Allocations;
  readonly pods: PodStore;
  readonly admission: Admission;
  readonly events: EventSink;
  /** True if containers may use the target's swap, with a limit. */
  swaps(signal: AbortSignal): Promise<boolean>;
  readonly measures: Pick<ResizeMeasures, "asked" | "accepted" | "infeasible">;
  /** Sources that have reported: before all have, the resources held by pods are not known. */
  readonly spoken: Pick<SourceMarks, "all">;
  /** `retryPendingResizes` is sent when pods hold fewer resources: a pending resize may fit. */
  readonly signals: Sends<"weigh">;
  /** Column written by the resize manager. */
  readonly resize: ColumnWriter<ResizeState>;
  /** Private columns: pods with undecided or deferred resizes, and last requested resources. */
  readonly pending: ColumnWriter<true>;
  readonly wishes: ColumnWriter<PodResources>;
  readonly clock: Clock;
  readonly log: Logger;
}

/** Creates the resize manager, which works like the kubelet's: a request is admitted against the allocations of other pods; if it fits, it
 *  is allocated, otherwise it is deferred and retried whenever resources become free. An infeasible resize is not retried.
 *  (kubelet, allocation/allocation_manager.go)
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export function createResizes(deps: ResizesDeps): Resizes & ResizeDecider {
  const { allocations, pods, pending, measures, log } = deps;
  const wishes = createWishes(deps.wishes, measures);
  const states = createResizeStates(deps.resize, deps.clock);

  const decide = async (active: () => readonly AskedPod[], trigger: ResizeTrigger, signal: AbortSignal) => {
    const waiting = pending.entries();
    if (waiting.length === 0 || !deps.spoken.all()) return [];
    const wanted = new Map(
      waiting
        .flatMap(([uid]) => pods.get(uid) ?? [])
        .filter((pod) => !isEnding(pod))
        .map((pod) => [pod.metadata.uid, pod]),
    );
    for (const [uid] of waiting) if (!wanted.has(uid)) pending.delete(uid);
    const known = [...wanted.values()];
    const news: string[] = [];
    for (const pod of inOrder(known, allocations.of, states.deferredSince)) {
      const { uid } = pod.metadata;
      try {
        const waited = states.deferredSince(uid) !== undefined;
        const verdict = await weigh(deps, states, { pod, active: active() }, signal);
        if (verdict.settled) pending.delete(uid);
        if (verdict.news) news.push(uid);
        if (waited && verdict.given) measures.accepted(trigger);
      } catch (error) {
        signal.throwIfAborted();
        log.warn({ err: error, uid }, "cannot decide on a resize; retrying");
      }
    }
    return news;
  };

  return {
    allocated: allocations.of,
    held: allocations.held,
    inForce: (pod, observed) => inForceOf(allocations, pod, observed),
    take(pod) {
      allocations.take(pod);
      states.recall(pod.metadata.uid, shownConditions(pod));
    },
    ask(pod) {
      const { uid } = pod.metadata;
      if (!wishes.hear(pod)) return false;
      if (!allocations.isGranted(pod)) {
        pending.set(uid, true);
        return true;
      }
      // A pending resize has been reverted.
      pending.delete(uid);
      states.settle(uid);
      return false;
    },
    decide,
    observe: (pod, observed) => observe(deps, states, pod, observed),
    failed(pod, message) {
      const { uid, generation = 0 } = pod.metadata;
      const since = states.fail(uid, message, generation);
      if (since !== undefined) tell(deps, pod, "ResizeError", resizeText("Pod resize error", pod, since, message));
    },
  };
}

interface Verdict {
  /** The resize is decided and need not be retried. */
  readonly settled: boolean;
  /** The pod's allocation or resize status has changed. */
  readonly news: boolean;
  readonly given?: true;
}

async function weigh(
  deps: ResizesDeps,
  states: ResizeStates,
  { pod, active }: { readonly pod: AskedPod; readonly active: readonly AskedPod[] },
  signal: AbortSignal,
): Promise<Verdict> {
  const { allocations } = deps;
  const { uid, generation = 0 } = pod.metadata;
  // The pod may have been preempted for another pod's resize.
  if (!active.some(({ metadata }) => metadata.uid === uid)) return { settled: true, news: false };
  if (allocations.isGranted(pod)) return { settled: true, news: states.settle(uid) };
  if (resizesSwap(pod, allocations.of(pod)) && (await deps.swaps(signal))) {
    deps.measures.infeasible("swap_limitation");
    const why = { reason: "Infeasible", message: "In-place resize of containers with swap is not supported." } as const;
    return { settled: true, news: await hold(deps, states, pod, why, why.reason) };
  }
  const others = active.filter(({ metadata }) => metadata.uid !== uid).map(allocations.held);
  // Admitted as if its request were allocated already.
  const refusal = await deps.admission.admit(givenPod(pod), others, signal);
  if (refusal) {
    const { reason, message } = refusal;
    return { settled: false, news: await hold(deps, states, pod, { reason: "Deferred", message }, reason) };
  }
  await allocations.give(pod);
  states.settle(uid);
  states.begin(uid, generation);
  tell(deps, pod, "ResizeStarted", resizeText("Pod resize started", pod, generation));
  return { settled: true, news: true, given: true };
}

/** Marks a resize as pending, and checkpoints the pod's allocation. @param refusal the reason in the event's text: the
 *  admission's own, such as `OutOfcpu`. (kubelet, handlePodResourcesResize) @returns true if the resize status has changed. */
async function hold(
  deps: ResizesDeps,
  states: ResizeStates,
  pod: AskedPod,
  why: Pick<PendingResize, "reason" | "message">,
  refusal: string,
): Promise<boolean> {
  const { uid, generation = 0 } = pod.metadata;
  // After a restart, graftlet would otherwise take the current request as the allocation.
  await deps.allocations.keep(pod);
  const change = states.hold(uid, why, generation);
  if (change === "news")
    tell(deps, pod, `Resize${why.reason}`, resizeText(`Pod resize ${refusal}`, pod, generation, why.message));
  return change !== undefined;
}

/** Records whether the allocation has been actuated. */
function observe(deps: ResizesDeps, states: ResizeStates, pod: GivenPod, observed: RuntimePod): void {
  const { uid, generation = 0 } = pod.metadata;
  if (inProgress(deps.allocations, pod, observed)) return states.goOn(uid, generation);
  const done = states.end(uid);
  if (done === undefined) return;
  tell(deps, pod, "ResizeCompleted", resizeText("Pod resize completed", pod, done));
  deps.signals.weigh.send("pod_resized");
}

function tell({ events }: ResizesDeps, pod: AskedPod | GivenPod, reason: string, text: string): void {
  const type = reason === "ResizeStarted" || reason === "ResizeCompleted" ? "Normal" : "Warning";
  events.event(podReference(pod), type, reason, text);
}

function shownConditions({ status }: AskedPod): readonly PodCondition[] {
  return (status?.conditions ?? []).filter(isResizeCondition);
}

/** True while the actuated resources of a running container differ from the allocation; other containers get it when they start. */
function inProgress(allocations: Allocations, pod: GivenPod, observed: RuntimePod): boolean {
  const { spec } = pod;
  const resizable = [...spec.containers, ...(spec.initContainers ?? []).filter(isSidecar)];
  const differs = (container: Container) => {
    const run = runningOf(observed, container);
    if (!run) return false;
    const wanted = amountsOf(effectiveResources(container.resources, spec.resources));
    return !sameAmounts(wanted, amountsOf(allocations.ofContainer(pod, run)));
  };
  const whole = allocations.ofPod(pod);
  return resizable.some(differs) || !sameAmounts(amountsOf(spec.resources ?? {}), amountsOf(whole ?? {}));
}

function inForceOf(allocations: Allocations, pod: GivenPod, observed: RuntimePod): GivenPod {
  const { containers, initContainers = [] } = pod.spec;
  const each = [...initContainers, ...containers].flatMap((container) => {
    const run = runningOf(observed, container);
    return run ? [[container.name, allocations.ofContainer(pod, run)] as const] : [];
  });
  const whole = allocations.ofPod(pod);
  return givenPod(withResources(pod, { containers: Object.fromEntries(each), ...(whole && { pod: whole }) }));
}

/** The newest container of a name, if it is running. */
function runningOf(observed: RuntimePod, { name }: Container) {
  const newest = newestRun(observed, name);
  return newest?.state === ContainerState.CONTAINER_RUNNING ? newest : undefined;
}
