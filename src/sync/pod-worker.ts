import type { Clock } from "../lib/clock.ts";
import { CodedError } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { Mailbox } from "../lib/mailbox.ts";
import { timed } from "../lib/timed.ts";
import type { Span, Tracer } from "../lib/tracer.ts";
import { fullName } from "../pod/reference.ts";
import type { PassKind, WorkerMeasures } from "../measures.ts";
import type { Eviction, Presence, WakeCause } from "../pipeline.ts";
import { isEnding } from "../pod/phase.ts";
import type { AskedPod } from "../roles.ts";
import type { Ending, WorkerPhase, WorkerView } from "../state/pod-table.ts";
import { asSpan } from "./pass-span.ts";

/** Outcome of one sync pass. */
export interface PassResult {
  /** The pod has reached Succeeded or Failed. */
  readonly terminal: boolean;
  /** Milliseconds until the next pass, unless the worker is woken earlier. */
  readonly againMs: number;
  /** Error of a step that the next pass retries. */
  readonly error?: unknown;
  /** Set if the node ends the pod. */
  readonly eviction?: Eviction;
}

/** Sync passes over one pod: a function for each phase. `pod` is undefined for a pod that only the runtime knows. */
export interface Passes {
  sync(pod: AskedPod, signal: AbortSignal): Promise<PassResult>;
  terminating(uid: string, pod: AskedPod | undefined, ending: Ending, signal: AbortSignal): Promise<void>;
  terminated(uid: string, pod: AskedPod | undefined, signal: AbortSignal): Promise<void>;
  /** The object of a finished pod has changed: its final status is written again, and it may be deleted. */
  settled(pod: AskedPod): void;
}

export interface PodWorkerDeps {
  readonly uid: string;
  readonly passes: Passes;
  readonly presence?: Presence;
  readonly tracer: Tracer;
  readonly clock: Clock;
  readonly log: Logger;
  /** Schedules another pass of this worker. */
  readonly later: (uid: string, delayMs: number) => void;
  readonly measures: WorkerMeasures;
  /** Called on each change of the worker's phase or pod; not before createPodWorker returns. */
  readonly publish: (view: WorkerView) => void;
  /** Aborts when graftlet stops: pods keep running. */
  readonly stop: AbortSignal;
}

/** Serializes the passes over one pod. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination */
export interface PodWorker {
  /** Sets the latest version of the pod; begins termination if the pod is being deleted or has ended. */
  update(pod: AskedPod): void;
  wake(cause: WakeCause): void;
  /** Begins termination, or shortens its grace period, which never grows.
   *  @param eviction set if the node ends the pod; ignored once termination has begun. */
  terminate(graceSeconds: number | undefined, eviction?: Eviction): void;
  idle(): Promise<void>;
}

/** Cause of a pod's termination. */
interface End {
  readonly by: PassKind;
  readonly why?: Eviction | undefined;
}

/** A failed pass is retried after 1 to 1.5 times this, milliseconds. */
const retryMs = 10_000;

export function createPodWorker(deps: PodWorkerDeps): PodWorker {
  const { uid, passes, presence, clock, log, later, measures, stop } = deps;
  let phase: WorkerPhase = "syncing";
  let pod: AskedPod | undefined;
  let grace: number | undefined;
  let end: End = { by: "kill" };
  let pass = new AbortController();
  const publish = () => deps.publish({ phase, pod, ...(isForRoom(end.why) && { evicted: true }) });
  const enter = (next: WorkerPhase, how = end) => {
    [phase, end] = [next, how];
    publish();
  };
  const kindOf = createKinds(measures);

  const step = async (cause: WakeCause): Promise<void> => {
    if (stop.aborted || phase === "finished") return;
    pass = new AbortController();
    const signal = AbortSignal.any([pass.signal, stop]);
    let lost: AbortSignal | undefined;
    try {
      lost = presence && (await presence(signal));
      const patience = lost ? AbortSignal.any([signal, lost]) : signal;
      const what = { kind: kindOf(phase, pod, cause), endedBy: () => end.by, pod };
      await measured(deps, what, (span) => work(patience, what.kind, span));
    } catch (error) {
      if (signal.aborted) return;
      // The pod's state is unknown: the pass is repeated once the target is reachable again.
      if (lost?.aborted) return box.put("resync");
      log.warn({ err: error, ...nameOf(pod), uid, phase }, "Error syncing pod, skipping");
      later(uid, retryMs * clock.jitter(1, 1.5));
    }
  };
  const box = new Mailbox<WakeCause>(step, (error) => log.error({ err: error, uid }, "pod worker failed"));

  const work = async (signal: AbortSignal, kind: PassKind, span?: Span) => {
    if (phase === "terminating") {
      await passes.terminating(uid, pod, { graceSeconds: grace, eviction: end.why }, signal);
      enter("terminated");
      box.put("kill");
    } else if (phase === "terminated") {
      await passes.terminated(uid, pod, signal);
      enter("finished");
    } else if (pod) {
      const { terminal, againMs, error, eviction: why } = await passes.sync(pod, signal);
      if (error !== undefined) span?.fail(error);
      if (terminal) terminate(undefined, { by: kind, why });
      else if (phase === "syncing") later(uid, againMs);
    }
  };

  const terminate = (graceSeconds: number | undefined, now: End) => {
    const before = phase === "terminating" ? (grace ?? ownGrace(pod)) : grace;
    grace = shorterGrace(before, graceSeconds);
    const shrinks = phase === "terminating" && grace !== before;
    if (phase !== "syncing" && !shrinks) return;
    if (phase === "syncing") enter("terminating", now);
    pass.abort(new CodedError("cancelled", "pod is being terminated"));
    box.put("kill");
  };

  return {
    update(newest) {
      pod = newest;
      publish();
      if (phase === "finished") return passes.settled(newest);
      if (isEnding(newest)) terminate(newest.metadata.deletionGracePeriodSeconds, { by: "update" });
      else box.put("config");
    },
    wake: (cause) => void (phase !== "finished" && box.put(cause)),
    terminate: (graceSeconds, why) => terminate(graceSeconds, { by: "kill", why }),
    idle: () => box.idle(),
  };
}

/** True if the pod was evicted or preempted: as with a kubelet, its containers are not kept. */
function isForRoom(eviction: Eviction | undefined): boolean {
  return eviction !== undefined && ["Evicted", "Preempting"].includes(eviction.reason);
}

interface Pass {
  readonly kind: PassKind;
  readonly endedBy: () => PassKind;
  readonly pod: AskedPod | undefined;
}

/** Runs a pass as a span and measures its duration. As in the kubelet, terminating passes are labelled with the cause of the termination, and
 *  a successful last pass is labelled `terminated`. */
async function measured(
  deps: PodWorkerDeps,
  { kind, endedBy, pod }: Pass,
  work: (span?: Span) => Promise<void>,
): Promise<void> {
  const { clock, measures } = deps;
  const byCause = (failed: boolean) => kind === "kill" || (kind === "terminated" && failed);
  await timed(
    clock,
    () => asSpan(deps.tracer, kind, pod, work),
    (ms, failed) => measures.passed(byCause(failed) ? endedBy() : kind, ms),
  );
}

/** Creates a function that classifies the next pass for metrics. */
function createKinds(
  measures: WorkerMeasures,
): (phase: WorkerPhase, pod: AskedPod | undefined, cause: WakeCause) => PassKind {
  let begun = false;
  return (phase, pod, cause) => {
    if (phase !== "syncing") return phase === "terminating" ? "kill" : "terminated";
    if (begun || !pod) return cause === "config" ? "update" : "sync";
    begun = true;
    measures.began(pod);
    return "create";
  };
}

/** The pod's own grace period, in seconds; undefined for a pod that only the runtime knows. */
function ownGrace(pod: AskedPod | undefined): number | undefined {
  const seconds = pod?.spec.terminationGracePeriodSeconds;
  return seconds === undefined ? undefined : Math.max(1, seconds);
}

/** The shorter of two grace periods in seconds, at least 1; undefined means the pod's own. */
function shorterGrace(current: number | undefined, requested: number | undefined): number | undefined {
  if (requested === undefined) return current;
  return Math.max(1, Math.min(current ?? Number.POSITIVE_INFINITY, requested));
}

function nameOf(pod: AskedPod | undefined): object {
  return pod ? { pod: fullName(pod) } : {};
}
