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
  /** Milliseconds until the next pass when nothing happens before. */
  readonly againMs: number;
  /** Why something could not be done, which is tried again then. */
  readonly error?: unknown;
  /** Why the node ends the pod, where it does. */
  readonly eviction?: Eviction;
}

/** The work on one pod, a function for each phase. `pod` is undefined for a pod that only the runtime knows. */
export interface Passes {
  sync(pod: AskedPod, signal: AbortSignal): Promise<PassResult>;
  terminating(uid: string, pod: AskedPod | undefined, ending: Ending, signal: AbortSignal): Promise<void>;
  terminated(uid: string, pod: AskedPod | undefined, signal: AbortSignal): Promise<void>;
  /** A finished pod's object changed: its final status stands, and it may be deleted. */
  settled(pod: AskedPod): void;
}

export interface PodWorkerDeps {
  readonly uid: string;
  readonly passes: Passes;
  readonly presence?: Presence;
  readonly tracer: Tracer;
  readonly clock: Clock;
  readonly log: Logger;
  /** Wakes this worker again later. */
  readonly later: (uid: string, delayMs: number) => void;
  readonly measures: WorkerMeasures;
  /** Called with each change of the worker's phase or pod; never before this returns. */
  readonly publish: (view: WorkerView) => void;
  /** Aborts when graftlet stops: pods stay as they are. */
  readonly stop: AbortSignal;
}

/** One pod's serial work. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination */
export interface PodWorker {
  /** The newest version of the pod; begins termination when it says so. */
  update(pod: AskedPod): void;
  wake(cause: WakeCause): void;
  /** Begins termination, or shortens its grace period: a grace period only ever shrinks.
   *  @param eviction why the node ends the pod, where it does; it counts when termination begins. */
  terminate(graceSeconds: number | undefined, eviction?: Eviction): void;
  idle(): Promise<void>;
}

/** Cause of a pod's termination, and the reason why the node ends it, where it does. */
interface End {
  readonly by: PassKind;
  readonly why?: Eviction | undefined;
}

/** An error is tried again after this long, milliseconds, times 1 to 1.5. */
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
      // Nothing can be said of the pod: its pass is made again once the target is back.
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

/** True where the node ends the pod because of what it uses: as with a kubelet, nothing of it is kept. */
function isForRoom(eviction: Eviction | undefined): boolean {
  return eviction !== undefined && ["Evicted", "Preempting"].includes(eviction.reason);
}

interface Pass {
  readonly kind: PassKind;
  readonly endedBy: () => PassKind;
  readonly pod: AskedPod | undefined;
}

/** Does the work as a span, and tells how long it took. As in a kubelet the passes that end a pod are told by what brought them about, and
 *  the last one has a name of its own where it worked. */
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

/** Says what the pass that comes is for, as metrics have it. */
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

/** The grace period, in seconds, of a pod that ends without another; undefined for one that only the runtime knows. */
function ownGrace(pod: AskedPod | undefined): number | undefined {
  const seconds = pod?.spec.terminationGracePeriodSeconds;
  return seconds === undefined ? undefined : Math.max(1, seconds);
}

/** The shorter of two grace periods in seconds, at least 1; undefined leaves the pod's own. */
function shorterGrace(current: number | undefined, requested: number | undefined): number | undefined {
  if (requested === undefined) return current;
  return Math.max(1, Math.min(current ?? Number.POSITIVE_INFINITY, requested));
}

function nameOf(pod: AskedPod | undefined): object {
  return pod ? { pod: fullName(pod) } : {};
}
