import { ContainerState } from "../gen/cri.ts";
import type { Clock } from "../lib/clock.ts";
import { hasCode, messageOf } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { sideBySide } from "../lib/side-by-side.ts";
import type { PodStatus } from "../objects.ts";
import type {
  EventSink,
  Eviction,
  ObjectRegistry,
  PodCache,
  PodInspector,
  PodRuntime,
  Prober,
  RuntimeIds,
  RuntimePod,
  Served,
  StatusSink,
  SyncOutcome,
  VolumeGate,
} from "../pipeline.ts";
import { fullName, podReference } from "../pod/reference.ts";
import { evicted } from "../pod/evicted.ts";
import { isTerminal } from "../pod/phase.ts";
import { isAlive } from "../pod/sandbox.ts";
import { reportedEnds, withUnstarted } from "../pod/unstarted.ts";
import type { Resizes } from "../resizes.ts";
import type { ResourceManager } from "../resource-manager.ts";
import type { AskedPod, GivenPod } from "../roles.ts";
import type { ColumnWriter } from "../state/rows.ts";
import { withinDeadline } from "./deadline.ts";
import { type PlaceholderDeps, asPlaceholder } from "./placeholder.ts";
import { type RejectedDeps, unlessRejected } from "./rejected.ts";
import type { PassResult, Passes } from "./pod-worker.ts";

/** Data directories and cgroup of a pod on the target. */
export interface PodGround {
  /** @param empty true if the runtime has nothing of the pod yet. */
  prepare(pod: GivenPod, empty: boolean, signal: AbortSignal): Promise<void>;
  /** Releases what a pod used that is gone from the runtime. Idempotent. */
  release(uid: string, signal: AbortSignal): Promise<void>;
}

export interface PassDeps extends RejectedDeps, PlaceholderDeps {
  readonly cache: PodCache;
  /** Pods that a pass has changed without observing the outcome: the cache may be stale. Private column. */
  readonly unseen: ColumnWriter<true>;
  readonly inspector: PodInspector;
  readonly runtime: PodRuntime;
  readonly volumes: VolumeGate;
  readonly objects: ObjectRegistry;
  readonly prober: Prober;
  readonly served: Served;
  readonly status: StatusSink & { reconcile(pod: AskedPod): void };
  readonly events: EventSink;
  readonly ground: PodGround;
  readonly managers: readonly Pick<ResourceManager, "release">[];
  readonly resizes: Resizes;
  /** Generates a pod's status from an observation. */
  readonly statusOf: (pod: AskedPod, observed: RuntimePod, ending: boolean) => PodStatus;
  /** Why pods cannot get a network, or undefined. */
  readonly networkError: () => string | undefined;
  /** KubeletConfiguration.syncFrequency, milliseconds: an unchanged pod is synced again after 1 to 1.5 times this. */
  readonly syncMs: number;
  readonly clock: Clock;
  readonly log: Logger;
}

/** A pod in back-off is synced again after this long at the latest, milliseconds. */
const longestWaitMs = 60_000;
const networkRetryMs = 1_000;
const retryMs = 10_000;
/** The kubelet's relist period, milliseconds: it reports what a pass has created, so a failed pass is followed by another one, which
 *  reports the back-off without waiting for the pause. */
const relistMs = 1_000;

/** Observes a pod and reports its status. */
interface Sight {
  /** Inspects the pod. A failure is reported by an event, unless the runtime does not respond. */
  look(uid: string, pod: AskedPod | GivenPod | undefined, signal: AbortSignal, made?: RuntimeIds): Promise<RuntimePod>;
  /** @param ending the pod has been killed, and no container or sandbox of it is alive. */
  report(pod: AskedPod, observed: RuntimePod, ending: boolean, eviction?: Eviction): PodStatus;
}

function createSight(deps: PassDeps): Sight {
  const look: Sight["look"] = async (uid, pod, signal, made) => {
    try {
      const observed = await deps.inspector.inspect(uid, signal, made);
      deps.unseen.delete(uid);
      return observed;
    } catch (error) {
      if (pod && !signal.aborted && !hasCode(error, "unavailable", "deadline_exceeded")) {
        const message = `error determining status: ${messageOf(error)}`;
        deps.events.event(podReference(pod), "Warning", "FailedSync", message);
      }
      throw error;
    }
  };
  const report = (pod: AskedPod, observed: RuntimePod, ending: boolean, eviction?: Eviction): PodStatus => {
    const seen = deps.statusOf(pod, observed, ending);
    const status = eviction ? evicted(pod, seen, eviction) : seen;
    deps.status.set(pod, status, ending);
    return status;
  };
  return { look, report };
}

/** Creates the passes of a pod worker: one function per phase, each idempotent. */
export function createPasses(deps: PassDeps): Passes {
  const sight = createSight(deps);
  const { look, report } = sight;
  return {
    async sync(pod, signal) {
      const observed = () => deps.cache.get(pod.metadata.uid) ?? emptyPod(pod);
      const fail = (why: Eviction) => void report(pod, observed(), false, why);
      const make = (within: AbortSignal) => syncOnce(deps, sight, pod, within);
      return unlessRejected(
        deps,
        pod,
        { make: (stop) => withinDeadline(deps, pod, { make, fail }, stop), fail },
        signal,
      );
    },

    async terminating(uid, pod, { graceSeconds, eviction }, signal) {
      deps.unseen.set(uid, true);
      deps.prober.spare(uid);
      const observed = await look(uid, pod, signal);
      if (pod) report(pod, observed, false, eviction);
      await deps.runtime.kill(observed, pod, pod ? graceSeconds : 1, signal);
      deps.prober.remove(uid);
      const after = await look(uid, pod, signal);
      if (isAlive(after)) throw new Error("containers or sandbox still run after the pod was killed");
      if (pod) report(pod, after, true, eviction);
    },

    async terminated(uid, pod, signal) {
      if (pod) deps.status.reconcile(pod);
      for (const manager of deps.managers) manager.release(uid);
      await giveBack(deps, uid, pod, signal);
      deps.objects.unregister(uid);
      await deps.ground.release(uid, signal);
      if (pod) deps.status.terminated(pod);
    },

    settled: (pod) => deps.status.terminated(pod),
  };
}

/** Unmounts a pod's volumes. A failure is reported by an event; the worker retries. */
async function giveBack(
  { volumes, events }: PassDeps,
  uid: string,
  pod: AskedPod | undefined,
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

/** Reconciles the runtime's pod with the spec, as far as one pass can. */
async function syncOnce(
  deps: PassDeps,
  { look, report }: Sight,
  asked: AskedPod,
  signal: AbortSignal,
): Promise<PassResult> {
  const { resizes, unseen } = deps;
  const pod = resizes.allocated(asked);
  const { uid } = pod.metadata;
  const mustLook = unseen.get(uid) || deps.inspector.isUnseen(uid);
  const read = createReader(deps, asked);
  const observed = read(mustLook ? await look(uid, pod, signal) : (deps.cache.get(uid) ?? emptyPod(pod)));
  const show = () => report(asked, observed, false);
  const inert = await asPlaceholder(deps, asked, { observed, show }, signal);
  if (inert) return inert;
  resizes.observe(pod, observed);
  const status = show();
  if (isTerminal(status.phase)) return { terminal: true, againMs: 0 };
  const holdUp = await announceHoldUp(deps, pod, signal);
  if (holdUp !== undefined) return { terminal: false, againMs: holdUp * deps.clock.jitter(1, 1.5) };
  deps.objects.register(pod);
  const [, , plan] = await sideBySide(
    [
      (stop) => deps.ground.prepare(resizes.inForce(pod, observed), isEmpty(observed), stop),
      (stop) => deps.volumes.mount(pod, stop),
      (stop) => deps.runtime.plan(pod, observed, stop),
    ],
    signal,
  );
  deps.prober.add(pod);
  unseen.set(uid, true);
  const showSandbox = async (seen: RuntimePod | undefined) => {
    if (seen) deps.inspector.learn(seen);
    report(asked, read(seen ?? (await deps.inspector.inspect(uid, signal))), false);
  };
  const outcome = await plan.perform(showSandbox, signal);
  if (outcome.untouched) {
    unseen.delete(uid);
    return {
      terminal: false,
      againMs: nextPassMs(deps, outcome, false),
      ...(outcome.error && { error: outcome.error }),
    };
  }
  const after = read(await look(uid, pod, signal, outcome.made), outcome.refused);
  if (outcome.resizeError !== undefined) resizes.failed(pod, outcome.resizeError);
  else resizes.observe(pod, after);
  const final = report(asked, after, false);
  await outcome.rest;
  const terminal = isTerminal(final.phase);
  const { error } = outcome;
  if (error) deps.log.debug({ err: error, uid, pod: fullName(pod) }, "sync pass did not start all containers");
  const againMs = nextPassMs(deps, outcome, outcome.again === true || endedDuring(observed, after));
  return { terminal, againMs, ...(error && { error }) };
}

/** Corrects observations: a container whose start was cut off, and whose end no status has reported, counts as not started.
 *  @returns a function of an observation and the IDs of containers whose start has just been refused. */
function createReader({ status }: PassDeps, asked: AskedPod) {
  return (observed: RuntimePod, refused: readonly string[] = []): RuntimePod => {
    const known = new Set([...refused, ...reportedEnds(status.get(asked.metadata.uid)), ...reportedEnds(asked.status)]);
    return withUnstarted(observed, (id) => known.has(id));
  };
}

/** Emits an event if the pod cannot start yet. @returns milliseconds until the next check. */
async function announceHoldUp(
  { served, events, networkError, syncMs }: PassDeps,
  pod: GivenPod,
  signal: AbortSignal,
): Promise<number | undefined> {
  const missing = await served.unserved(pod, signal);
  if (missing.length > 0) {
    const fields = missing.map(({ field, why }) => `${field} (${why})`).join(", ");
    events.event(podReference(pod), "Warning", "FieldNotServed", `pod is held: this node does not support ${fields}`);
    return syncMs;
  }
  const network = pod.spec.hostNetwork ? undefined : networkError();
  if (network === undefined) return undefined;
  events.event(podReference(pod), "Warning", "NetworkNotReady", `network is not ready: ${network}`);
  return networkRetryMs;
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
  const patience = outcome.error && hasMade(outcome) ? relistMs : longestWaitMs;
  if (outcome.retryAt !== undefined) return Math.min(patience, Math.max(0, outcome.retryAt - clock.now()));
  return outcome.error ? Math.min(patience, retryMs * clock.jitter(1, 1.5)) : syncMs * clock.jitter(1, 1.5);
}

function hasMade({ made }: SyncOutcome): boolean {
  return made !== undefined && made.sandboxes.length + made.containers.length > 0;
}

function emptyPod(pod: AskedPod | GivenPod): RuntimePod {
  const { uid, name, namespace } = pod.metadata;
  return { uid, name, namespace, sandboxes: [], containers: [], sandboxOf: new Map(), ips: [], observedAt: 0 };
}

/** True if the runtime has neither sandboxes nor containers of the pod. */
function isEmpty({ sandboxes, containers }: RuntimePod): boolean {
  return sandboxes.length + containers.length === 0;
}
