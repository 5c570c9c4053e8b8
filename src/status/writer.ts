import type { Clock } from "../lib/clock.ts";
import { hasCode } from "../lib/errors.ts";
import type { Logger } from "../lib/log.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { StatusMeasures } from "../measures.ts";
import type { PodStatus } from "../objects.ts";
import { isMirrorPod } from "../pod/containers.ts";
import { isTerminal } from "../pod/phase.ts";
import { type ShownPod, shownPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/rows.ts";
import { mergeStatus } from "./merge.ts";
import { statusPatch } from "./patch.ts";
import type { PodApi } from "./pod-api.ts";

/** A pod's status on its way to the API server. */
export interface Outgoing {
  readonly uid: string;
  readonly status: PodStatus;
  /** No container of it runs any more. */
  readonly ended: boolean;
  /** Its volumes are unmounted too. */
  readonly finished: boolean;
  /** Clock.monotonic(): since when the API server is to hear something of the pod. */
  readonly since: number;
}

export interface WriterDeps {
  readonly api: PodApi;
  /** The pods as the API server has them; a static pod by its mirror pod. */
  readonly shown: Pick<Column<ShownPod>, "get">;
  readonly worker: Pick<Column<WorkerView>, "get">;
  readonly clock: Clock;
  readonly log: Logger;
  readonly measures: StatusMeasures;
}

export interface StatusWriter {
  /** Brings the API server's pod up to date; deletes the object of a finished pod that is being deleted.
   *  @returns true when the object is gone. @throws when it should be tried again. */
  write(outgoing: Outgoing, signal: AbortSignal): Promise<boolean>;
  forget(uid: string): void;
}

/** The API server answers within this, milliseconds, or is asked again. */
const answerMs = 10_000;

/** The API server's last answer to this node about a pod, ahead of the watch. */
interface Answer {
  readonly pod: ShownPod;
  /** A patch, as text, that changed nothing on that version: an API server drops fields that it does not know. */
  readonly futile?: string;
}

export function createStatusWriter({ api, shown: column, worker, clock, log, measures }: WriterDeps): StatusWriter {
  const answers = new Map<string, Answer>();
  const shownOf = (uid: string) => {
    const pod = column.get(uid);
    return pod && newer(pod, answers.get(uid)?.pod);
  };

  const update = async (
    { uid, status, ended, since }: Outgoing,
    shown: ShownPod,
    signal: AbortSignal,
  ): Promise<ShownPod> => {
    const before = shown.status ?? {};
    const sending = {
      mayRun: !ended && mayRun(worker.get(uid)),
      now: rfc3339(clock.now()),
      isMirror: isMirrorPod(shown),
    };
    const patch = statusPatch(before, mergeStatus(before, status, sending));
    const text = patch && JSON.stringify(patch);
    const last = answers.get(uid);
    if (!patch || (last?.futile === text && last?.pod.metadata.resourceVersion === shown.metadata.resourceVersion))
      return shown;
    const pod = shownPod(await api.patchStatus(shown.metadata, patch, clock.within(answerMs, signal)));
    const changed = pod.metadata.resourceVersion !== shown.metadata.resourceVersion;
    answers.set(uid, { pod, ...(!changed && text && { futile: text }) });
    measures.written(pod, clock.monotonic() - since);
    return pod;
  };

  /** True when the pod of this UID is no more; else what is shown was out of date, and is newer now. */
  const isReplaced = async (known: string, shown: ShownPod, signal: AbortSignal): Promise<boolean> => {
    const { namespace, name, uid } = shown.metadata;
    const pod = shownPod(await api.get(namespace, name, clock.within(answerMs, signal)));
    if (pod.metadata.uid !== uid) return true;
    answers.set(known, { pod });
    return false;
  };

  const attempt = async (outgoing: Outgoing, shown: ShownPod, signal: AbortSignal): Promise<boolean> => {
    const pod = await update(outgoing, shown, signal);
    if (!mayDelete(pod, outgoing)) return false;
    await api.remove(shown.metadata, clock.within(answerMs, signal));
    log.debug({ pod: `${shown.metadata.namespace}/${shown.metadata.name}`, uid: outgoing.uid }, "pod deleted");
    return true;
  };

  return {
    async write(outgoing, signal) {
      const shown = shownOf(outgoing.uid);
      if (!shown) return false;
      try {
        return await attempt(outgoing, shown, signal);
      } catch (error) {
        const gone =
          hasCode(error, "not_found") ||
          // The API server calls another UID in a patch invalid, and in a deletion a conflict.
          (hasCode(error, "conflict", "invalid_argument") && (await isReplaced(outgoing.uid, shown, signal)));
        if (!gone) throw error;
        // A static pod outlives its mirror pods: the next one is told when it is there.
        answers.delete(outgoing.uid);
        return !isMirrorPod(shown);
      }
    },
    forget: (uid) => void answers.delete(uid),
  };
}

/** A worker that has not taken its pod down yet may have containers running. */
function mayRun(worker: WorkerView | undefined): boolean {
  return worker?.phase === "syncing" || worker?.phase === "terminating";
}

/** The kubelet removes only pods that are marked for deletion, and only after the final phase has been shown.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination */
function mayDelete(pod: ShownPod, { finished }: Outgoing): boolean {
  return finished && pod.metadata.deletionTimestamp !== undefined && !isMirrorPod(pod) && isTerminal(pod.status?.phase);
}

/** The later of two versions of a pod; resource versions are decimal numbers that grow.
 *  @see https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions */
function newer(watched: ShownPod, answered: ShownPod | undefined): ShownPod {
  if (!answered) return watched;
  const [a, b] = [watched.metadata.resourceVersion ?? "", answered.metadata.resourceVersion ?? ""];
  return a.length > b.length || (a.length === b.length && a > b) ? watched : answered;
}
