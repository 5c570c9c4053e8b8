import { ContainerState } from "../gen/cri.ts";
import { CodedError, hasCode, messageOf } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { runConcurrently } from "../lib/run-concurrently.ts";
import type { PodStatus, Pod } from "../objects.ts";
import type {
  EventSink,
  EventType,
  Eviction,
  PodCache,
  PodInspector,
  Rejection,
  RuntimeIds,
  RuntimePod,
  VolumeMounter,
} from "../pipeline.ts";
import { podFullName, podReference } from "../pod/reference.ts";
import { PodRejectedError } from "../pod/rejected.ts";
import { isTerminal } from "../pod/phase.ts";
import { isAlive } from "../pod/sandbox.ts";
import { reportedTerminations, resetFailedStarts } from "../pod/failed-starts.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { DesiredPod, AllocatedPod } from "../roles.ts";
import type { ColumnWriter, PrivateColumn } from "../state/records.ts";
import { type PlaceholderDeps, syncPlaceholder } from "./placeholder-pass.ts";
import type { PassResult, Passes } from "./pod-worker.ts";
import type { ObjectRegistry, PodRuntime, Prober, FieldChecker, StatusSink, SyncOutcome, Resizes } from "./ports.ts";
import { disruption, disruptionCondition } from "../pod/conditions.ts";

/** Data directories and cgroup of a pod on the target. */
export interface PodHostResources {
  /** @param empty true if the runtime has no sandbox or container of the pod yet. */
  prepare(pod: AllocatedPod, empty: boolean, signal: AbortSignal): Promise<void>;
  /** Removes the directories and cgroup of a pod that is gone from the runtime. Idempotent. */
  release(uid: string, signal: AbortSignal): Promise<void>;
}

export interface PassDeps extends PlaceholderDeps, ClockAndLog {
  readonly podCache: PodCache;
  readonly privateColumn: PrivateColumn;
  readonly inspector: PodInspector;
  readonly podRuntime: PodRuntime;
  readonly volumes: Pick<VolumeMounter, "mount" | "unmount">;
  readonly objects: ObjectRegistry;
  readonly prober: Prober;
  readonly fieldChecker: FieldChecker;
  readonly statuses: StatusSink & { reconcile(pod: DesiredPod): void };
  readonly events: EventSink;
  readonly hostResources: PodHostResources;
  readonly managers: readonly Pick<ResourceManager, "unpreparePod" | "release">[];
  readonly resizes: Resizes;
  readonly statusOf: (pod: DesiredPod, observed: RuntimePod, ending: boolean) => PodStatus;
  /** Called with the reason for each pod that is rejected during a sync pass. */
  readonly onRejected: (reason: string) => void;
  /** Reason why pods cannot get a network; undefined if they can. */
  readonly networkError: () => string | undefined;
  /** KubeletConfiguration.syncFrequency, milliseconds: an unchanged pod is synced again after 1 to 1.5 times this. */
  readonly syncMs: number;
}

const deadlineExceeded: Rejection = {
  reason: "DeadlineExceeded",
  message: "Pod was active on the node longer than the specified deadline",
};

/** A pod in back-off is synced again after this long at the latest, milliseconds. */
const maxWaitMs = 60_000;
const networkRetryDelayMs = 1_000;
const retryDelayMs = 10_000;
/** The kubelet's relist period, milliseconds. A kubelet's relist finds what a failed pass created, and triggers another pass, which reports
 *  the back-off. */
const relistMs = 1_000;

/** Observes a pod and reports its status. */
interface PodObserver {
  /** Inspects the pod. A failure is reported by an event, unless the runtime does not respond. */
  inspect(
    uid: string,
    pod: DesiredPod | AllocatedPod | undefined,
    signal: AbortSignal,
    made?: RuntimeIds,
  ): Promise<RuntimePod>;
  /** @param ending the pod has been killed, and no container or sandbox of it is alive. */
  report(pod: DesiredPod, observed: RuntimePod, ending: boolean, eviction?: Eviction): PodStatus;
}

/** Dependencies that the passes share. */
interface PassContext extends PassDeps, PodObserver {
  /** Pods that a pass has changed without observing the outcome: the cache may be stale. */
  readonly needsInspection: ColumnWriter<true>;
}

function createPodObserver(deps: PassDeps & Pick<PassContext, "needsInspection">): PodObserver {
  const inspect: PodObserver["inspect"] = async (uid, pod, signal, made) => {
    try {
      const observed = await deps.inspector.inspect(uid, signal, made);
      deps.needsInspection.delete(uid);
      return observed;
    } catch (error) {
      if (pod && !signal.aborted && !hasCode(error, "unavailable", "deadline_exceeded")) {
        const message = `error determining status: ${messageOf(error)}`;
        deps.events.event(podReference(pod), "Warning", "FailedSync", message);
      }
      throw error;
    }
  };
  const report = (pod: DesiredPod, observed: RuntimePod, ending: boolean, eviction?: Eviction): PodStatus => {
    const generated = deps.statusOf(pod, observed, ending);
    const status = eviction ? evictedStatus(pod, generated, eviction) : generated;
    deps.statuses.set(pod, status, ending);
    return status;
  };
  return { inspect, report };
}

/** Creates the passes of a pod worker: one function per phase, each idempotent. */
export function createPasses(deps: PassDeps): Passes {
  const needsInspection = deps.privateColumn<true>();
  const { inspect, report } = createPodObserver({ ...deps, needsInspection });
  const context: PassContext = { ...deps, needsInspection, inspect, report };
  return {
    // Fails the pod if the node cannot run it. If it exceeds its activeDeadlineSeconds, the pass is aborted and the pod fails.
    // See https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#detailed-behavior
    async sync(pod, signal) {
      const msLeft = () => msUntilDeadline(deps, pod);
      const exceeded = () => failPod(context, pod, "Normal", deadlineExceeded);
      if (msLeft() <= 0) return exceeded();
      const expired = new AbortController();
      const expire = () => expired.abort(new CodedError("deadline_exceeded", deadlineExceeded.message));
      const timer = Number.isFinite(msLeft()) ? deps.clock.after(msLeft(), expire) : undefined;
      try {
        const result = await syncOnce(context, pod, AbortSignal.any([signal, expired.signal]));
        return { ...result, requeueAfterMs: Math.min(result.requeueAfterMs, Math.max(0, msLeft())) };
      } catch (error) {
        if (!signal.aborted && msLeft() <= 0) return exceeded();
        if (!(error instanceof PodRejectedError)) throw error;
        const { rejection } = error;
        deps.onRejected(rejection.reason);
        return failPod(context, pod, "Warning", rejection, `Pod was rejected: ${rejection.message}`);
      } finally {
        timer?.cancel();
      }
    },

    async terminating(uid, pod, { graceSeconds, eviction }, signal) {
      needsInspection.set(uid, true);
      deps.prober.stopLivenessAndStartup(uid);
      const observed = await inspect(uid, pod, signal);
      if (pod) report(pod, observed, false, eviction);
      await deps.podRuntime.kill(observed, pod, pod ? graceSeconds : 1, signal);
      deps.prober.remove(uid);
      const after = await inspect(uid, pod, signal);
      if (isAlive(after)) throw new Error("containers or sandbox still run after the pod was killed");
      // This precedes the report of the end, after which the control plane frees what was allocated to the pod.
      for (const manager of deps.managers) await manager.unpreparePod?.(uid, signal);
      if (pod) report(pod, after, true, eviction);
    },

    async terminated(uid, pod, signal) {
      if (pod) deps.statuses.reconcile(pod);
      for (const manager of deps.managers) manager.release(uid);
      await unmountVolumes(deps, uid, pod, signal);
      deps.objects.unregister(uid);
      await deps.hostResources.release(uid, signal);
      if (pod) deps.statuses.terminated(pod);
    },

    objectChanged: (pod) => deps.statuses.terminated(pod),
  };
}

/** Returns the milliseconds until the pod exceeds its activeDeadlineSeconds, counted from its start time, even if another agent
 *  started it; Infinity without a deadline. A pod that has not started has its full time left. */
function msUntilDeadline({ statuses, clock }: PassDeps, { metadata, spec, status: shown }: DesiredPod): number {
  if (spec.activeDeadlineSeconds === undefined) return Number.POSITIVE_INFINITY;
  const { startTime } = statuses.get(metadata.uid) ?? shown ?? {};
  const startedAt = Date.parse(startTime ?? "") || clock.now();
  return startedAt + spec.activeDeadlineSeconds * 1000 - clock.now();
}

/** Fails a pod during a sync pass. @param shown message of the pod's status. */
function failPod(
  { podCache, events, report }: PassContext,
  pod: DesiredPod,
  type: EventType,
  { reason, message }: Rejection,
  shown = message,
): PassResult {
  events.event(podReference(pod), type, reason, message);
  const eviction = { reason, message: shown };
  report(pod, podCache.get(pod.metadata.uid) ?? emptyPod(pod), false, eviction);
  return { terminal: true, requeueAfterMs: 0, eviction };
}

/** Unmounts a pod's volumes. A failure is reported by an event; the worker retries. */
async function unmountVolumes(
  { volumes, events }: PassDeps,
  uid: string,
  pod: DesiredPod | undefined,
  signal: AbortSignal,
): Promise<void> {
  try {
    await volumes.unmount(uid, signal);
  } catch (error) {
    if (pod && !signal.aborted && !hasCode(error, "unavailable")) {
      const message = `cannot unmount the pod's volumes; retrying: ${messageOf(error)}`;
      events.event(podReference(pod), "Warning", "FailedUnmount", message);
    }
    throw error;
  }
}

/** Runs one pass, which brings the pod in the runtime closer to its spec. */
async function syncOnce(deps: PassContext, desired: DesiredPod, signal: AbortSignal): Promise<PassResult> {
  const { resizes, needsInspection, inspect, report } = deps;
  const pod = resizes.allocatedPod(desired);
  const { uid } = pod.metadata;
  const mustInspect = needsInspection.get(uid) || deps.inspector.needsInspection(uid);
  const correct = createStartCorrection(deps, desired);
  const observed = correct(mustInspect ? await inspect(uid, pod, signal) : (deps.podCache.get(uid) ?? emptyPod(pod)));
  const reportCurrent = () => report(desired, observed, false);
  const placeholder = await syncPlaceholder(deps, desired, { observed, show: reportCurrent }, signal);
  if (placeholder) return placeholder;
  resizes.checkProgress(pod, observed);
  const status = reportCurrent();
  if (isTerminal(status.phase)) return { terminal: true, requeueAfterMs: 0 };
  const holdMs = await reportHold(deps, pod, signal);
  if (holdMs !== undefined) return { terminal: false, requeueAfterMs: holdMs * deps.clock.jitter(1, 1.5) };
  deps.objects.register(pod);
  const [, mounted, plan] = await runConcurrently(
    [
      (stop) => deps.hostResources.prepare(resizes.actuatedPod(pod, observed), isEmpty(observed), stop),
      (stop) => deps.volumes.mount(pod, stop),
      (stop) => deps.podRuntime.plan(pod, observed, stop),
    ],
    signal,
  );
  deps.prober.add(pod);
  needsInspection.set(uid, true);
  const showSandbox = async (seen: RuntimePod | undefined) => {
    if (seen) deps.inspector.recordObservation(seen);
    report(desired, correct(seen ?? (await deps.inspector.inspect(uid, signal))), false);
  };
  const outcome = await plan.perform(mounted, showSandbox, signal);
  if (outcome.untouched) {
    needsInspection.delete(uid);
    return {
      terminal: false,
      requeueAfterMs: nextPassMs(deps, outcome, false),
      ...(outcome.error && { error: outcome.error }),
    };
  }
  const observedAfter = correct(await inspect(uid, pod, signal, outcome.made), outcome.refused);
  if (outcome.resizeError !== undefined) resizes.actuationFailed(pod, outcome.resizeError);
  else resizes.checkProgress(pod, observedAfter);
  const final = report(desired, observedAfter, false);
  await outcome.rest;
  const terminal = isTerminal(final.phase);
  const { error } = outcome;
  if (error) deps.log.debug({ err: error, uid, pod: podFullName(pod) }, "sync pass did not start all containers");
  const requeueAfterMs = nextPassMs(deps, outcome, outcome.again === true || endedDuring(observed, observedAfter));
  return { terminal, requeueAfterMs, ...(error && { error }) };
}

/** Corrects observations: a container whose start was interrupted, and whose end no status has reported, counts as not started.
 *  @returns a function of an observation and the IDs of containers whose start has just been refused. */
function createStartCorrection({ statuses }: PassDeps, desired: DesiredPod) {
  return (observed: RuntimePod, refused: readonly string[] = []): RuntimePod => {
    const reported = new Set([
      ...refused,
      ...reportedTerminations(statuses.get(desired.metadata.uid)),
      ...reportedTerminations(desired.status),
    ]);
    return resetFailedStarts(observed, (id) => reported.has(id));
  };
}

/** Emits an event if the pod cannot start yet. @returns milliseconds until the next check. */
async function reportHold(
  { fieldChecker, events, networkError, syncMs }: PassDeps,
  pod: AllocatedPod,
  signal: AbortSignal,
): Promise<number | undefined> {
  const unsupported = await fieldChecker.unsupportedFields(pod, signal);
  if (unsupported.length > 0) {
    const fields = unsupported.map(({ field, why }) => `${field} (${why})`).join(", ");
    events.event(podReference(pod), "Warning", "UnsupportedField", `pod is held: this node does not support ${fields}`);
    return syncMs;
  }
  const network = pod.spec.hostNetwork ? undefined : networkError();
  if (network === undefined) return undefined;
  events.event(podReference(pod), "Warning", "NetworkNotReady", `network is not ready: ${network}`);
  return networkRetryDelayMs;
}

/** True if a container ended between the observations before and after the pass: its event may have been consumed already. */
function endedDuring(before: RuntimePod, after: RuntimePod): boolean {
  const ended = new Set(
    before.containers.filter(({ state }) => state === ContainerState.CONTAINER_EXITED).map(({ id }) => id),
  );
  return after.containers.some(({ id, state }) => state === ContainerState.CONTAINER_EXITED && !ended.has(id));
}

function nextPassMs({ clock, syncMs }: PassDeps, outcome: SyncOutcome, atOnce: boolean): number {
  if (atOnce) return 0;
  const maxMs = outcome.error && hasCreated(outcome) ? relistMs : maxWaitMs;
  if (outcome.retryAt !== undefined) return Math.min(maxMs, Math.max(0, outcome.retryAt - clock.now()));
  return outcome.error ? Math.min(maxMs, retryDelayMs * clock.jitter(1, 1.5)) : syncMs * clock.jitter(1, 1.5);
}

function hasCreated({ made }: SyncOutcome): boolean {
  return made !== undefined && made.sandboxes.length + made.containers.length > 0;
}

function emptyPod(pod: DesiredPod | AllocatedPod): RuntimePod {
  const { uid, name, namespace } = pod.metadata;
  return { uid, name, namespace, sandboxes: [], containers: [], sandboxOf: new Map(), ips: [], observedAt: 0 };
}

/** True if the runtime has neither sandboxes nor containers of the pod. */
function isEmpty({ sandboxes, containers }: RuntimePod): boolean {
  return sandboxes.length + containers.length === 0;
}

/** Returns the status of a pod that its node terminates: Failed with the given reason. As in the kubelet, a preempted or evicted
 *  pod whose containers all exit successfully is Succeeded, but a pod that has exceeded its active deadline fails regardless of
 *  exit codes. */
export function evictedStatus(pod: Pod, status: PodStatus, { reason, message, disruption: why }: Eviction): PodStatus {
  if (why === undefined) return { ...status, phase: "Failed", reason, message };
  const others = (status.conditions ?? []).filter(({ type }) => type !== disruptionCondition);
  return {
    ...status,
    ...(status.phase !== "Succeeded" && { phase: "Failed", reason, message }),
    conditions: [...others, disruption(pod, why)],
  };
}
