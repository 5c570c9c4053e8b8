import { ContainerState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { ResizeMeasures } from "../measures.ts";
import type { Container, Pod, PodCondition } from "../objects.ts";
import type { Admission, EventSink, PodStore, RuntimePod } from "../pipeline.ts";
import { isSidecar } from "../pod/containers.ts";
import { isTerminal } from "../pod/phase.ts";
import { podReference } from "../pod/reference.ts";
import { amountsOf, effectiveResources, sameAmounts, withResources } from "../pod/resize.ts";
import { newestRun } from "../pod/runs.ts";
import type { ResizeDecider, ResizeTrigger, Resizes } from "../resizes.ts";
import type { Allocations } from "./allocations.ts";
import { createWishes } from "./resize-changes.ts";
import { resizeText } from "./resize-text.ts";
import { createResizeStates } from "./resize-states.ts";
import { inOrder } from "./resize-order.ts";

export interface ResizesDeps {
  readonly allocations: Allocations;
  readonly pods: PodStore;
  readonly admission: Admission;
  readonly events: EventSink;
  readonly measures: Pick<ResizeMeasures, "asked" | "accepted">;
  /** Every source has spoken: before that nobody knows what pods hold. */
  readonly sourcesSpoke: () => boolean;
  /** What pods hold has become less: what is pending may fit. */
  readonly onFreed: () => void;
  readonly clock: Clock;
  readonly log: Logger;
}

interface Forgetful {
  /** Drops what is known of a pod that is gone. */
  forget(uid: string): void;
  /** The same of all but the pods that still exist. */
  forgetExcept(known: ReadonlySet<string>): void;
}

interface Counted {
  /** How many pods' resizes wait, and how many are being put in force. */
  counts(): { readonly pending: number; readonly inProgress: number };
}

/** Resizes as the kubelet does them: what a pod asks for is weighed against what the others have been given; it is given where it
 *  fits, else deferred and weighed again whenever something has become free. (kubelet, allocation/allocation_manager.go)
 *  @see https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/ */
export function createResizes(deps: ResizesDeps): Resizes & ResizeDecider & Forgetful & Counted {
  const { allocations, pods, measures, log } = deps;
  const wishes = createWishes(measures);
  const states = createResizeStates(deps.clock);
  const pending = new Set<string>();

  const decide = async (active: () => readonly Pod[], trigger: ResizeTrigger, signal: AbortSignal) => {
    if (pending.size === 0 || !deps.sourcesSpoke()) return [];
    const known = [...pending].flatMap((uid) => pods.get(uid) ?? []).filter(isWanted);
    pending.clear();
    for (const { metadata } of known) pending.add(metadata.uid);
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
        log.warn({ err: error, uid }, "a resize could not be decided, will try again");
      }
    }
    return news;
  };

  const forget = (uid: string) => {
    pending.delete(uid);
    states.forget(uid);
    allocations.forget(uid);
    wishes.forget(uid);
  };

  return {
    allocated: allocations.of,
    inForce: (pod, observed) => inForceOf(allocations, pod, observed),
    conditions: states.conditions,
    counts: states.counts,
    take(pod) {
      allocations.take(pod);
      wishes.begin(allocations.of(pod));
      states.recall(pod.metadata.uid, resizeConditions(pod));
    },
    ask(pod) {
      const { uid } = pod.metadata;
      wishes.hear(pod);
      if (allocations.of(pod) !== pod) {
        pending.add(uid);
        return true;
      }
      // What was pending has been taken back.
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
    forget,
    forgetExcept(known) {
      for (const uid of [...states.uids(), ...allocations.uids()]) if (!known.has(uid)) forget(uid);
    },
  };
}

interface Verdict {
  /** It need not be looked at again. */
  readonly settled: boolean;
  /** The pod has been given something else, or has something else to show. */
  readonly news: boolean;
  readonly given?: true;
}

async function weigh(
  deps: ResizesDeps,
  states: ReturnType<typeof createResizeStates>,
  { pod, active }: { readonly pod: Pod; readonly active: readonly Pod[] },
  signal: AbortSignal,
): Promise<Verdict> {
  const { allocations } = deps;
  const { uid, generation = 0 } = pod.metadata;
  // It may have ended meanwhile, for another's resize.
  if (!active.some(({ metadata }) => metadata.uid === uid)) return { settled: true, news: false };
  if (allocations.of(pod) === pod) return { settled: true, news: states.settle(uid) };
  const others = active.filter(({ metadata }) => metadata.uid !== uid).map(allocations.of);
  const refusal = await deps.admission.admit(pod, others, signal);
  if (refusal) {
    const { message } = refusal;
    const change = states.defer(uid, message, generation);
    if (change === "news")
      tell(deps, pod, "ResizeDeferred", resizeText("Pod resize Deferred", pod, generation, message));
    return { settled: false, news: change !== undefined };
  }
  await allocations.give(pod);
  states.settle(uid);
  states.begin(uid, generation);
  tell(deps, pod, "ResizeStarted", resizeText("Pod resize started", pod, generation));
  return { settled: true, news: true, given: true };
}

/** One that ends is given nothing any more. */
function isWanted({ metadata, status }: Pod): boolean {
  return metadata.deletionTimestamp === undefined && !isTerminal(status?.phase);
}

/** What is in force now is what was given, or is not yet. */
function observe(
  deps: ResizesDeps,
  states: ReturnType<typeof createResizeStates>,
  pod: Pod,
  observed: RuntimePod,
): void {
  const { uid, generation = 0 } = pod.metadata;
  if (inProgress(deps.allocations, pod, observed)) return states.goOn(uid, generation);
  const done = states.end(uid);
  if (done === undefined) return;
  tell(deps, pod, "ResizeCompleted", resizeText("Pod resize completed", pod, done));
  deps.onFreed();
}

function tell({ events }: ResizesDeps, pod: Pod, reason: string, text: string): void {
  const type = reason === "ResizeStarted" || reason === "ResizeCompleted" ? "Normal" : "Warning";
  events.event(podReference(pod), type, reason, text);
}

function resizeConditions({ status }: Pod): readonly PodCondition[] {
  return (status?.conditions ?? []).filter(({ type }) => type === "PodResizePending" || type === "PodResizeInProgress");
}

/** What is in force differs from what the pod was given, for what runs: the rest gets it right when it starts. */
function inProgress(allocations: Allocations, pod: Pod, observed: RuntimePod): boolean {
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

function inForceOf(allocations: Allocations, pod: Pod, observed: RuntimePod): Pod {
  const { containers, initContainers = [] } = pod.spec;
  const each = [...initContainers, ...containers].flatMap((container) => {
    const run = runningOf(observed, container);
    return run ? [[container.name, allocations.ofContainer(pod, run)] as const] : [];
  });
  const whole = allocations.ofPod(pod);
  return withResources(pod, { containers: Object.fromEntries(each), ...(whole && { pod: whole }) });
}

/** The newest of a name, if it runs. */
function runningOf(observed: RuntimePod, { name }: Container) {
  const newest = newestRun(observed, name);
  return newest?.state === ContainerState.CONTAINER_RUNNING ? newest : undefined;
}
