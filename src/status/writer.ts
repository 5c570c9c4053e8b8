import { hasCode } from "../lib/errors.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { PodStatus, Pod, PodCondition } from "../objects.ts";
import { isMirrorPod } from "../pod/containers.ts";
import { isTerminal } from "../pod/phase.ts";
import { type ApiPod, apiPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import { statusPatch } from "./patch.ts";
import type { PodApi } from "./pod-api.ts";
import { disruptionCondition, isKubeletCondition, isOwnDisruption } from "../pod/conditions.ts";

export interface StatusMeasures {
  /** A pod's status has changed on the node. */
  changed(pod: Pod, before: PodStatus | undefined, after: PodStatus): void;
  /** The API server has accepted a pod's status. @param ms time since the status first differed from the API server's. */
  written(pod: Pod, ms: number): void;
}

/** The status that the API server should have for a pod (the kubelet's versionedPodStatus). */
export interface PendingStatus {
  readonly status: PodStatus;
  /** True if no container of the pod runs or will run again. */
  readonly ended: boolean;
  /** True if, in addition, the pod's volumes are unmounted. */
  readonly finished: boolean;
}

/** A pod status to be written to the API server. */
export interface StatusUpdate extends PendingStatus {
  readonly uid: string;
  /** Clock.monotonic() of the oldest change not written yet. */
  readonly changedAt: number;
}

export interface WriterDeps extends ClockAndLog {
  readonly api: PodApi;
  /** The API server's copies of the pods; for a static pod, its mirror pod. */
  readonly apiPods: Pick<Column<ApiPod>, "get" | "onChange">;
  readonly worker: Pick<Column<WorkerView>, "get">;
  readonly measures: StatusMeasures;
}

const requestTimeoutMs = 10_000;

/** The API server's last response for a pod, until the watch has delivered it. */
interface CachedResponse {
  readonly pod: ApiPod;
  /** The last patch, as text, if it changed nothing in that version: API servers drop fields that they do not know. */
  readonly ignoredPatch?: string;
}

export function createStatusWriter({ api, apiPods: column, worker, clock, log, measures }: WriterDeps) {
  const responses = new Map<string, CachedResponse>();
  const newestCopy = (uid: string) => {
    const pod = column.get(uid);
    const answered = responses.get(uid)?.pod;
    return pod && answered && isNewer(answered, pod) ? answered : pod;
  };
  /** Drops a response that says nothing that the watch has not delivered. */
  const tidy = (uid: string) => {
    const [watched, last] = [column.get(uid), responses.get(uid)];
    if (watched && last && last.ignoredPatch === undefined && !isNewer(last.pod, watched)) responses.delete(uid);
  };
  const keep = (uid: string, response: CachedResponse) => {
    responses.set(uid, response);
    tidy(uid);
  };
  column.onChange(tidy);

  const update = async (
    { uid, status, ended, changedAt }: StatusUpdate,
    shown: ApiPod,
    signal: AbortSignal,
  ): Promise<ApiPod> => {
    const before = shown.status ?? {};
    const context = {
      mayRun: !ended && mayRun(worker.get(uid)),
      now: rfc3339(clock.now()),
      isMirror: isMirrorPod(shown),
    };
    const patch = statusPatch(before, mergeStatus(before, status, context));
    const text = patch && JSON.stringify(patch);
    const last = responses.get(uid);
    if (
      !patch ||
      (last?.ignoredPatch === text && last?.pod.metadata.resourceVersion === shown.metadata.resourceVersion)
    )
      return shown;
    const pod = apiPod(await api.patchStatus(shown.metadata, patch, clock.within(requestTimeoutMs, signal)));
    const changed = pod.metadata.resourceVersion !== shown.metadata.resourceVersion;
    keep(uid, { pod, ...(!changed && text && { ignoredPatch: text }) });
    measures.written(pod, clock.monotonic() - changedAt);
    return pod;
  };

  /** True if the pod with this UID is gone; otherwise our copy was stale and has been refreshed. */
  const isReplaced = async (known: string, shown: ApiPod, signal: AbortSignal): Promise<boolean> => {
    const { namespace, name, uid } = shown.metadata;
    const pod = apiPod(await api.get(namespace, name, clock.within(requestTimeoutMs, signal)));
    if (pod.metadata.uid !== uid) return true;
    keep(known, { pod });
    return false;
  };

  const updateOrDelete = async (outgoing: StatusUpdate, shown: ApiPod, signal: AbortSignal): Promise<boolean> => {
    const pod = await update(outgoing, shown, signal);
    if (!mayDelete(pod, outgoing)) return false;
    await api.remove(shown.metadata, clock.within(requestTimeoutMs, signal));
    log.debug({ pod: `${shown.metadata.namespace}/${shown.metadata.name}`, uid: outgoing.uid }, "deleted pod");
    return true;
  };

  return {
    /** Updates the pod in the API server; deletes the object of a finished pod that is marked for deletion.
     *  @returns true if the object is gone. @throws if the write should be retried. */
    async write(outgoing: StatusUpdate, signal: AbortSignal) {
      const shown = newestCopy(outgoing.uid);
      if (!shown) return false;
      try {
        return await updateOrDelete(outgoing, shown, signal);
      } catch (error) {
        const gone =
          hasCode(error, "not_found") ||
          // For another UID the API server reports "invalid" for a patch and "conflict" for a deletion.
          (hasCode(error, "conflict", "invalid_argument") && (await isReplaced(outgoing.uid, shown, signal)));
        if (!gone) throw error;
        // A static pod outlives its mirror pods: the next one gets its status once it exists.
        responses.delete(outgoing.uid);
        return !isMirrorPod(shown);
      }
    },
    forget: (uid: string) => void responses.delete(uid),
  };
}

/** True if containers of the pod may be running, because the worker has not terminated it yet. */
function mayRun(worker: WorkerView | undefined): boolean {
  return worker?.phase === "syncing" || worker?.phase === "terminating";
}

/** The kubelet deletes only pods that are marked for deletion, and only after their final phase is shown.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination */
function mayDelete(pod: ApiPod, { finished }: StatusUpdate): boolean {
  return finished && pod.metadata.deletionTimestamp !== undefined && !isMirrorPod(pod) && isTerminal(pod.status?.phase);
}

/** True if a pod has a later version than the other; resource versions are growing decimal numbers.
 *  @see https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions */
function isNewer(one: ApiPod, other: ApiPod): boolean {
  const [a, b] = [one.metadata.resourceVersion ?? "", other.metadata.resourceVersion ?? ""];
  return a.length > b.length || (a.length === b.length && a > b);
}

/** Context of a status update. */
interface MergeContext {
  /** A container of the pod may still be running. */
  readonly mayRun: boolean;
  /** RFC 3339. */
  readonly now: string;
  /** The API object is a mirror pod. */
  readonly isMirror?: boolean;
}

/** Merges this node's status with the conditions of other components. A final phase is held back while a container may run. A final
 *  phase already shown is kept, except on a mirror pod, whose phase only the node decides. A disruption reason is reported once,
 *  together with the end, and its transition time starts then.
 *  @param shown the API server's current status.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase */
export function mergeStatus(
  shown: PodStatus,
  own: PodStatus,
  { mayRun, now, isMirror = false }: MergeContext,
): PodStatus {
  const foreign = (shown.conditions ?? []).filter(({ type }) => !isKubeletCondition(type));
  const kubeletConditions = (own.conditions ?? []).filter(({ type }) => isKubeletCondition(type));
  const ends = !isTerminal(shown.phase) && isTerminal(own.phase);
  const keepsShownPhase = isTerminal(shown.phase) ? !isMirror && shown.phase !== own.phase : ends && mayRun;
  const { phase, reason, message } = keepsShownPhase ? shown : own;
  // Replaces a DisruptionTarget condition set by others.
  const ownDisruption = ends && !mayRun ? (own.conditions ?? []).filter(isOwnDisruption) : [];
  const others = ownDisruption.length > 0 ? foreign.filter(({ type }) => type !== disruptionCondition) : foreign;
  const disruptions = ownDisruption.map((condition) => ({
    ...condition,
    lastTransitionTime: shownTransitionTime(condition, foreign) ?? now,
  }));
  return { ...own, phase, reason, message, conditions: [...others, ...disruptions, ...kubeletConditions] };
}

/** Returns the transition time of an equal condition that is already shown; undefined if there is none. */
function shownTransitionTime({ type, status }: PodCondition, shown: readonly PodCondition[]): string | undefined {
  return shown.find((one) => one.type === type && one.status === status)?.lastTransitionTime;
}
