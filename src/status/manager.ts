import { rfc3339 } from "../lib/rfc3339.ts";
import type { Service } from "../lib/service-group.ts";
import type { Pod, PodStatus } from "../objects.ts";
import type { StatusSink } from "../pipeline.ts";
import { createDelivery, type Held } from "./delivery.ts";
import { normalizeStatus } from "./normalize.ts";
import { terminatedStatus } from "./terminate.ts";
import { carryOn, illegalRevival } from "./transition.ts";
import { mayWaitMs } from "./urgency.ts";
import type { WriterDeps } from "./writer.ts";

export interface StatusManager extends StatusSink, Service {
  /** Looks again whether the API server shows what it should: somebody else changed the pod's status, or its containers can no
   *  longer run. */
  reconcile(pod: Pod): void;
  /** Drops what is known of a pod that is gone. */
  forget(uid: string): void;
}

/** The only writer of pod statuses. What it promises:
 *  1. a status leaves as soon as it is set, but for one that only says that a pod is on its way, or its newest spec seen: it
 *     leaves a little later, or with what comes next; the newest one wins, and nothing is sent when nothing changed;
 *  2. start time, transition times and final phases of the API server stand, also after a restart;
 *  3. a final phase is shown only when no container of the pod can run any more;
 *  4. the object of a pod is deleted only when it was to be deleted, is finished, and shows its final phase.
 *  @see https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/ */
export function createStatusManager(deps: WriterDeps): StatusManager {
  const { clock, log, measures } = deps;
  const held = new Map<string, Held>();
  const delivery = createDelivery({ ...deps, held: (uid) => held.get(uid), onGone: (uid) => forget(uid) });

  const hold = (pod: Pod, status: PodStatus, came: { readonly ended?: boolean; readonly finished?: boolean }) => {
    const { uid, namespace, name } = pod.metadata;
    const known = held.get(uid);
    const before = known?.status ?? pod.status;
    const container = illegalRevival(pod, before, status);
    if (container !== undefined) {
      log.error(
        { pod: `${namespace}/${name}`, uid, container },
        "status dropped: it revives a container that has ended for good",
      );
      return;
    }
    const next = normalizeStatus(pod, carryOn(pod, before, status, rfc3339(clock.now())));
    const { ended = known?.ended ?? false, finished = known?.finished ?? false } = came;
    held.set(uid, { status: next, ended, finished });
    measures.changed(pod, before, next);
    delivery.send(uid, ended ? 0 : mayWaitMs(known?.status, next));
  };

  const forget = (uid: string) => {
    held.delete(uid);
    delivery.forget(uid);
  };

  return {
    name: "status-manager",
    get: (uid) => held.get(uid)?.status,
    set: (pod, status, ended) => hold(pod, status, ended ? { ended } : {}),
    terminated(pod) {
      const status = held.get(pod.metadata.uid)?.status ?? pod.status ?? {};
      hold(pod, terminatedStatus(pod, status), { ended: true, finished: true });
    },
    reconcile: (pod) => delivery.send(pod.metadata.uid),
    forget,
    run: (signal) => delivery.run([...held.keys()], signal),
  };
}
