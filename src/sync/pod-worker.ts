import { CodedError } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { LatestSlot } from "../lib/latest-slot.ts";
import { timed } from "../lib/timed.ts";
import type { Span, Tracer } from "../lib/tracer.ts";
import type { Pod } from "../objects.ts";
import { podFullName } from "../pod/reference.ts";
import type { Eviction, WaitForTarget, WakeCause } from "../pipeline.ts";
import { isEnding } from "../pod/phase.ts";
import type { DesiredPod } from "../roles.ts";
import type { Ending, WorkerPhase, WorkerView } from "../state/pod-table.ts";

/** What triggered a pod worker's sync; `terminated` for the last one of a pod. */
export type SyncPodType = "create" | "update" | "sync" | "kill" | "terminated";

/** Metrics of pod syncs. */
export interface WorkerMeasures {
  /** Called before the first sync of a pod. */
  started(pod: Pod): void;
  /** A sync has ended, successfully or not. */
  synced(kind: SyncPodType, ms: number): void;
}

/** Outcome of one sync pass. */
export interface PassResult {
  /** The pod has reached Succeeded or Failed. */
  readonly terminal: boolean;
  /** Milliseconds until the next pass, unless the worker is woken earlier. */
  readonly requeueAfterMs: number;
  /** Error of a step that the next pass retries. */
  readonly error?: unknown;
  /** Set if the node ends the pod. */
  readonly eviction?: Eviction;
}

/** Sync passes over one pod: a function for each phase. `pod` is undefined for a pod that only the runtime knows. */
export interface Passes {
  sync(pod: DesiredPod, signal: AbortSignal): Promise<PassResult>;
  terminating(uid: string, pod: DesiredPod | undefined, ending: Ending, signal: AbortSignal): Promise<void>;
  terminated(uid: string, pod: DesiredPod | undefined, signal: AbortSignal): Promise<void>;
  /** Called when the object of a finished pod has changed: its final status is written again, and the object may be deleted. */
  objectChanged(pod: DesiredPod): void;
}

export interface PodWorkerDeps extends ClockAndLog {
  readonly uid: string;
  readonly passes: Passes;
  readonly waitForTarget: WaitForTarget | undefined;
  readonly tracer: Tracer;
  /** Schedules another pass of this worker. */
  readonly requeueAfter: (uid: string, delayMs: number) => void;
  readonly measures: WorkerMeasures;
  /** Called on each change of the worker's phase or pod; not before createPodWorker returns. */
  readonly publish: (view: WorkerView) => void;
  /** Aborts when graftlet stops: pods keep running. */
  readonly stop: AbortSignal;
}

/** Serializes the passes over one pod. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination */
export type PodWorker = ReturnType<typeof createPodWorker>;

interface TerminationCause {
  readonly kind: SyncPodType;
  readonly eviction?: Eviction | undefined;
}

/** The kubelet's span names. */
const spanNames: Readonly<Record<SyncPodType, string>> = {
  create: "syncPod",
  update: "syncPod",
  sync: "syncPod",
  kill: "syncTerminatingPod",
  terminated: "syncTerminatedPod",
};

/** A failed pass is retried after 1 to 1.5 times this, milliseconds. */
const retryDelayMs = 10_000;

export function createPodWorker(deps: PodWorkerDeps) {
  const { uid, passes, waitForTarget, tracer, clock, log, requeueAfter, measures, stop } = deps;
  let phase: WorkerPhase = "syncing";
  let pod: DesiredPod | undefined;
  let grace: number | undefined;
  let end: TerminationCause = { kind: "kill" };
  let pass = new AbortController();
  let failing = false;
  const publish = () => deps.publish({ phase, pod, ...(isEvictedOrPreempted(end.eviction) && { evicted: true }) });
  const enterPhase = (next: WorkerPhase, how = end) => {
    [phase, end] = [next, how];
    publish();
  };
  const classify = createPassClassifier(measures);

  const step = async (cause: WakeCause): Promise<void> => {
    if (stop.aborted || phase === "finished") return;
    pass = new AbortController();
    const signal = AbortSignal.any([pass.signal, stop]);
    let lost: AbortSignal | undefined;
    try {
      lost = waitForTarget && (await waitForTarget(signal));
      const passSignal = lost ? AbortSignal.any([signal, lost]) : signal;
      const kind = classify(phase, pod, cause);
      await timed(
        clock,
        () => inSpan(tracer, kind, pod, (span) => runPass(passSignal, kind, span)),
        (ms, failed) => measures.synced(labelOf(kind, end.kind, failed), ms),
      );
    } catch (error) {
      if (signal.aborted) return;
      // The pod's state is unknown: the pass is repeated once the target is reachable again.
      if (lost?.aborted) return mailbox.put("resync");
      log.warn({ err: error, ...podField(pod), uid, phase }, "Error syncing pod, skipping");
      requeueAfter(uid, retryDelayMs * clock.jitter(1, 1.5));
    }
  };
  const mailbox = new LatestSlot<WakeCause>(step, (error) => log.error({ err: error, uid }, "pod worker failed"));

  const runPass = async (signal: AbortSignal, kind: SyncPodType, span?: Span) => {
    failing = true;
    let failure: unknown;
    if (phase === "terminating") {
      await passes.terminating(uid, pod, { graceSeconds: grace, eviction: end.eviction }, signal);
      enterPhase("terminated");
      mailbox.put("kill");
    } else if (phase === "terminated") {
      await passes.terminated(uid, pod, signal);
      enterPhase("finished");
    } else if (pod) {
      const { terminal, requeueAfterMs, error, eviction } = await passes.sync(pod, signal);
      failure = error;
      if (error !== undefined) span?.fail(error);
      if (terminal) terminate(undefined, { kind: kind, eviction });
      else if (phase === "syncing") requeueAfter(uid, requeueAfterMs);
    }
    failing = failure !== undefined;
  };

  const terminate = (graceSeconds: number | undefined, now: TerminationCause) => {
    const before = phase === "terminating" ? (grace ?? ownGrace(pod)) : grace;
    grace = shorterGrace(before, graceSeconds);
    const shrinks = phase === "terminating" && grace !== before;
    if (phase !== "syncing" && !shrinks) return;
    if (phase === "syncing") enterPhase("terminating", now);
    pass.abort(new CodedError("cancelled", "pod is being terminated"));
    mailbox.put("kill");
  };

  return {
    /** Sets the latest version of the pod; begins termination if the pod is being deleted or has ended. */
    update(newest: DesiredPod) {
      pod = newest;
      publish();
      if (phase === "finished") return passes.objectChanged(newest);
      if (isEnding(newest)) terminate(newest.metadata.deletionGracePeriodSeconds, { kind: "update" });
      else mailbox.put("config");
    },
    wake: (cause: WakeCause) => void (phase !== "finished" && mailbox.put(cause)),
    /** Begins termination, or shortens its grace period, which never grows.
     *  @param eviction set if the node ends the pod; ignored once termination has begun. */
    terminate: (graceSeconds: number | undefined, eviction?: Eviction) =>
      terminate(graceSeconds, { kind: "kill", eviction }),
    /** True if the last pass failed, or a pass is running. */
    isFailing: () => failing,
    idle: () => mailbox.idle(),
  };
}

/** True if the pod was evicted or preempted: as with a kubelet, its containers are not kept. */
function isEvictedOrPreempted(eviction: Eviction | undefined): boolean {
  return eviction !== undefined && ["Evicted", "Preempting"].includes(eviction.reason);
}

/** Runs a sync pass as the root span of a trace, with the kubelet's attributes. A pod that only the runtime knows gets no span.
 *  @throws the error of the pass.
 *  @see https://kubernetes.io/docs/concepts/cluster-administration/system-traces/#kubelet-traces */
function inSpan(
  tracer: Tracer,
  kind: SyncPodType,
  pod: DesiredPod | undefined,
  work: (span?: Span) => Promise<void>,
): Promise<void> {
  if (!pod || !tracer.isOn) return work();
  const { uid, name, namespace } = pod.metadata;
  const spanName = spanNames[kind];
  const attributes = {
    "k8s.pod.uid": uid,
    "k8s.pod": podFullName(pod),
    "k8s.pod.name": name,
    "k8s.namespace.name": namespace,
    ...(spanName === "syncPod" && { "k8s.pod.update_type": kind }),
  };
  return tracer.span(spanName, { attributes, parent: "none" }, work);
}

/** Returns the label of a pass in metrics. As in the kubelet, terminating passes have the cause of the termination, and only a
 *  successful last pass is labelled `terminated`. */
function labelOf(kind: SyncPodType, endedBy: SyncPodType, failed: boolean): SyncPodType {
  return kind === "kill" || (kind === "terminated" && failed) ? endedBy : kind;
}

/** Creates a function that classifies the next pass for metrics. */
function createPassClassifier(
  measures: WorkerMeasures,
): (phase: WorkerPhase, pod: DesiredPod | undefined, cause: WakeCause) => SyncPodType {
  let started = false;
  return (phase, pod, cause) => {
    if (phase !== "syncing") return phase === "terminating" ? "kill" : "terminated";
    if (started || !pod) return cause === "config" ? "update" : "sync";
    started = true;
    measures.started(pod);
    return "create";
  };
}

/** Returns the pod's own grace period, seconds; undefined for a pod that only the runtime knows. */
function ownGrace(pod: DesiredPod | undefined): number | undefined {
  const seconds = pod?.spec.terminationGracePeriodSeconds;
  return seconds === undefined ? undefined : Math.max(1, seconds);
}

/** Returns the shorter of two grace periods, seconds, but at least 1; undefined means the pod's own. */
function shorterGrace(current: number | undefined, requested: number | undefined): number | undefined {
  if (requested === undefined) return current;
  return Math.max(1, Math.min(current ?? Number.POSITIVE_INFINITY, requested));
}

function podField(pod: DesiredPod | undefined): object {
  return pod ? { pod: podFullName(pod) } : {};
}
