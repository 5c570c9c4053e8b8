import { isDeepStrictEqual } from "node:util";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { PodStatus, ContainerStatus, Pod, ContainerState } from "../objects.ts";
import type { DesiredPod } from "../roles.ts";
import type { ColumnWriter, PrivateColumn } from "../state/records.ts";
import { isStaticPod, isSidecar } from "../pod/containers.ts";
import { createDelivery } from "./delivery.ts";
import { withPreviousTimes, illegalTransition } from "./transition.ts";
import type { PendingStatus, WriterDeps } from "./writer.ts";
import { lostContainer } from "./generate/container-status.ts";
import { isTerminal } from "../pod/phase.ts";

export type StatusManager = ReturnType<typeof createStatusManager>;

export interface StatusManagerDeps extends WriterDeps {
  /** State column written by the status manager. */
  readonly status: ColumnWriter<PodStatus>;
  readonly privateColumn: PrivateColumn;
  /** Calls back when a pod's record is removed. */
  readonly onEnd: (hear: (uid: string) => void) => void;
}

/** The only writer of pod statuses. It guarantees that
 *  1. a status is written as soon as it is set, unless it only says that the pod is starting or that its newest generation was observed:
 *  such a status waits briefly and is merged with the next; the newest one wins, and nothing is sent if nothing changed;
 *  2. start time, transition times and final phases in the API server are kept, also after a restart;
 *  3. a final phase is shown only when no container of the pod can run any more;
 *  4. a pod's object is deleted only if it is marked for deletion, finished, and shows its final phase.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function createStatusManager(deps: StatusManagerDeps) {
  const { clock, log, measures, status: column } = deps;
  const pendingStatus = deps.privateColumn<PendingStatus>();
  const delivery = createDelivery({
    ...deps,
    pendingStatus: (uid) => pendingStatus.get(uid),
    onGone: (uid) => forget(uid),
  });

  const setPending = (
    pod: DesiredPod,
    status: PodStatus,
    progress: { readonly ended?: boolean; readonly finished?: boolean },
  ) => {
    const { uid, namespace, name } = pod.metadata;
    const known = pendingStatus.get(uid);
    const before = known?.status ?? (isStaticPod(pod) ? deps.apiPods.get(uid)?.status : undefined) ?? pod.status;
    const container = illegalTransition(pod, before, status);
    if (container !== undefined) {
      log.error(
        { pod: `${namespace}/${name}`, uid, container },
        "dropped status that would restart a terminated container",
      );
      return;
    }
    const next = normalizeStatus(pod, withPreviousTimes(pod, before, status, rfc3339(clock.now())));
    const { ended = known?.ended ?? false, finished = known?.finished ?? false } = progress;
    const value: PendingStatus = { status: next, ended, finished };
    // The status is already being delivered or retried.
    if (known && isDeepStrictEqual(known, value)) return;
    // The pod's record is gone, so the status is dropped.
    if (!pendingStatus.set(uid, value)) return;
    column.set(uid, next);
    measures.changed(pod, before, next);
    delivery.send(uid, ended ? 0 : writeDelayMs(known?.status, next));
  };

  const forget = (uid: string) => {
    pendingStatus.delete(uid);
    column.delete(uid);
    delivery.forget(uid);
  };
  deps.onEnd(delivery.forget);

  return {
    name: "status-manager",
    get: column.get,
    set: (pod: DesiredPod, status: PodStatus, ended?: boolean) => setPending(pod, status, ended ? { ended } : {}),
    terminated(pod: DesiredPod) {
      const status = pendingStatus.get(pod.metadata.uid)?.status ?? pod.status ?? {};
      setPending(pod, terminatedStatus(pod, status), { ended: true, finished: true });
    },
    /** Checks again whether the API server has the pending status: after it was changed there, or when the pod's containers can no longer
     *  run. @param afterMs delay; a status set in between is written at once. */
    reconcile: (pod: DesiredPod, afterMs?: number): void => delivery.send(pod.metadata.uid, afterMs),
    run: (signal: AbortSignal) =>
      delivery.run(
        pendingStatus.entries().map(([uid]) => uid),
        signal,
      ),
  };
}

const lostMessage = "The container could not be located when the pod was terminated";

/** Returns the final status of a pod whose containers are gone, in which all containers and the pod have ended. A container whose
 *  end was not observed counts as failed, unless it would never have been started.
 *  @param status the newest known. @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination */
export function terminatedStatus(pod: Pod, status: PodStatus): PodStatus {
  const { containerStatuses, initContainerStatuses, phase } = status;
  const tried = triedInitCount(initContainerStatuses ?? []);
  return {
    ...status,
    ...(containerStatuses && hasInitialized(pod) && { containerStatuses: containerStatuses.map(terminated) }),
    ...(initContainerStatuses && {
      initContainerStatuses: initContainerStatuses.map((one, index) => (index < tried ? terminated(one) : one)),
    }),
    ...(!isTerminal(phase) && !isStaticPod(pod) && { phase: "Failed" }),
  };
}

function terminated(status: ContainerStatus): ContainerStatus {
  return status.state?.terminated ? status : { ...status, state: { terminated: lostContainer(lostMessage) } };
}

/** Returns the number of init containers that were tried: all up to the last one that has run or failed, but at least the
 *  first. */
function triedInitCount(statuses: readonly ContainerStatus[]): number {
  const last = statuses.findLastIndex(({ state, lastState }) => !state?.waiting || lastState?.terminated);
  return Math.max(last + 1, 1);
}

/** True if the API server's status shows that the main containers had been allowed to start. */
function hasInitialized({ spec, status }: Pod): boolean {
  if (!spec.initContainers?.length) return true;
  if (status?.containerStatuses?.some(({ state, lastState }) => lastState?.terminated || !state?.waiting)) return true;
  const last = status?.initContainerStatuses?.at(-1);
  const container = spec.initContainers.find(({ name }) => name === last?.name);
  if (!last || !container) return false;
  if (isSidecar(container)) return last.state?.running !== undefined && last.started === true;
  return last.state?.terminated?.exitCode === 0 || last.lastState?.terminated?.exitCode === 0;
}

/** Waiting reasons of containers that have not been started yet. */
const startingReasons: readonly (string | undefined)[] = ["ContainerCreating", "PodInitializing"];

/** Maximum delay of a status that only says that a pod is starting, or that its newest generation was observed, milliseconds. */
const startingDelayMs = 1_000;
const generationDelayMs = 5_000;

/** Returns how long a status may wait to be merged with the next one, milliseconds. Errors and state changes of containers must
 *  not wait. @param before the previous pending status. */
function writeDelayMs(before: PodStatus | undefined, next: PodStatus): number {
  const containers = [...(next.initContainerStatuses ?? []), ...(next.containerStatuses ?? [])];
  if (next.phase === "Pending" && containers.length > 0 && containers.every(isStarting)) return startingDelayMs;
  return before && isDeepStrictEqual(withoutGenerations(before), withoutGenerations(next)) ? generationDelayMs : 0;
}

/** Returns a status without generations, including those of its conditions. */
function withoutGenerations(status: PodStatus): PodStatus {
  const conditions = status.conditions?.map((condition) => ({ ...condition, observedGeneration: 0 }));
  return { ...status, observedGeneration: 0, ...(conditions && { conditions }) };
}

function isStarting({ state, lastState, restartCount }: ContainerStatus): boolean {
  const waits = state?.waiting !== undefined && startingReasons.includes(state.waiting.reason);
  return waits && lastState?.terminated === undefined && restartCount === 0;
}

/** Maximum total bytes of a pod's termination messages.
 *  @see https://kubernetes.io/docs/tasks/debug/debug-application/determine-reason-pod-failure/ */
const messageBytes = 12 * 1024;

/** Normalizes a status as the API server stores it: whole seconds, truncated termination messages, sorted lists. */
export function normalizeStatus(pod: Pod, status: PodStatus): PodStatus {
  const { containers, initContainers = [], ephemeralContainers = [] } = pod.spec;
  const share = Math.floor(
    messageBytes / Math.max(1, containers.length + initContainers.length + ephemeralContainers.length),
  );
  const order = new Map(initContainers.map(({ name }, index) => [name, index]));
  const each = (list: readonly ContainerStatus[]) => list.map((one) => normalizeContainer(one, share));
  const byName = (a: ContainerStatus, b: ContainerStatus) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0);
  const bySpec = (a: ContainerStatus, b: ContainerStatus) => (order.get(a.name) ?? 0) - (order.get(b.name) ?? 0);
  return {
    ...status,
    ...(status.startTime && { startTime: wholeSeconds(status.startTime) }),
    ...(status.containerStatuses && { containerStatuses: each(status.containerStatuses).sort(byName) }),
    ...(status.initContainerStatuses && { initContainerStatuses: each(status.initContainerStatuses).sort(bySpec) }),
    ...(status.ephemeralContainerStatuses && {
      ephemeralContainerStatuses: each(status.ephemeralContainerStatuses).sort(byName),
    }),
  };
}

function normalizeContainer(status: ContainerStatus, share: number): ContainerStatus {
  return {
    ...status,
    ...(status.state && { state: normalizeState(status.state, share) }),
    ...(status.lastState && { lastState: normalizeState(status.lastState, share) }),
  };
}

function normalizeState(state: ContainerState, share: number): ContainerState {
  const { running, terminated } = state;
  return {
    ...state,
    ...(running?.startedAt && { running: { ...running, startedAt: wholeSeconds(running.startedAt) } }),
    ...(terminated && {
      terminated: {
        ...terminated,
        ...(terminated.startedAt && { startedAt: wholeSeconds(terminated.startedAt) }),
        ...(terminated.finishedAt && { finishedAt: wholeSeconds(terminated.finishedAt) }),
        ...(terminated.message && { message: truncate(terminated.message, share) }),
      },
    }),
  };
}

function wholeSeconds(time: string): string {
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? time : rfc3339(ms);
}

/** Returns the longest prefix of a text that fits into `bytes` bytes. */
function truncate(text: string, bytes: number): string {
  const encoded = Buffer.from(text);
  if (encoded.length <= bytes) return text;
  let end = bytes;
  // A byte 10xxxxxx continues a character.
  while (end > 0 && ((encoded[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return encoded.toString("utf8", 0, end);
}
