import { isDeepStrictEqual } from "node:util";
import type { StatusSink } from "../sync/ports.ts";
import { rfc3339 } from "../lib/rfc3339.ts";
import type { Service } from "../lib/service-group.ts";
import type { PodStatus } from "../objects.ts";
import type { DesiredPod } from "../roles.ts";
import type { ColumnWriter, PrivateColumn } from "../state/records.ts";
import { isStaticPod } from "../pod/containers.ts";
import { createDelivery, type PendingStatus } from "./delivery.ts";
import { normalizeStatus } from "./normalize.ts";
import { terminatedStatus } from "./terminate.ts";
import { withPreviousTimes, illegalTransition } from "./transition.ts";
import { writeDelayMs } from "./write-delay.ts";
import type { WriterDeps } from "./writer.ts";

export interface StatusManager extends StatusSink, Service {
  /** Checks again whether the API server has the pending status: after it was changed there, or when the pod's containers can no longer
   *  run. @param afterMs delay; a status set in between is written at once. */
  reconcile(pod: DesiredPod, afterMs?: number): void;
}

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
export function createStatusManager(deps: StatusManagerDeps): StatusManager {
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
    // The difference to the API server is already being delivered or retried.
    if (known && isDeepStrictEqual(known, value)) return;
    // The pod's record is gone.
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
    set: (pod, status, ended) => setPending(pod, status, ended ? { ended } : {}),
    terminated(pod) {
      const status = pendingStatus.get(pod.metadata.uid)?.status ?? pod.status ?? {};
      setPending(pod, terminatedStatus(pod, status), { ended: true, finished: true });
    },
    reconcile: (pod, afterMs) => delivery.send(pod.metadata.uid, afterMs),
    run: (signal) =>
      delivery.run(
        pendingStatus.entries().map(([uid]) => uid),
        signal,
      ),
  };
}
