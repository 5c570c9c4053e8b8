import type { PodCache } from "../pipeline.ts";
import { isStaticPod } from "../pod/containers.ts";
import { configSourceAnnotation } from "../pod/labels.ts";
import { podFullName } from "../pod/reference.ts";
import { isAlive } from "../pod/sandbox.ts";
import type { DesiredPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/records.ts";
import type { PodWorkers } from "./pod-workers.ts";

export interface StaticQueueDeps {
  readonly worker: Column<WorkerView>;
  readonly workers: Pick<PodWorkers, "terminate">;
  readonly podCache: PodCache;
}

/** Queue of static pods that wait until another pod of the same name, or their own previous run, has ended: versions of a static pod
 *  never run concurrently. In order of arrival. */
export type StaticQueue = ReturnType<typeof createStaticQueue>;

export function createStaticQueue(deps: StaticQueueDeps) {
  const waiting = new Map<string, DesiredPod>();
  const enqueue = (pod: DesiredPod) => void waiting.set(pod.metadata.uid, pod);
  return {
    /** Enqueues the pod if it must wait. @returns true if it does. */
    enqueueIfBlocked(pod: DesiredPod) {
      const waits = mustWait(deps, pod);
      if (waits) enqueue(pod);
      return waits;
    },
    /** Replaces a waiting pod with a newer version. @returns false if the pod does not wait. */
    update(pod: DesiredPod) {
      const waits = waiting.has(pod.metadata.uid);
      if (waits) enqueue(pod);
      return waits;
    },
    /** Removes a pod that is no longer wanted. @returns true if it was waiting. */
    remove: (uid: string) => waiting.delete(uid),
    has: (uid: string) => waiting.has(uid),
    /** Removes and returns the pods that no longer have to wait. */
    takeReady() {
      const free = [...waiting.values()].filter((pod) => !mustWait(deps, pod));
      for (const { metadata } of free) waiting.delete(metadata.uid);
      return free;
    },
  };
}

/** True while a static pod of the same name, or this pod's previous run, has not ended. If only the runtime knows that pod, it is
 *  terminated: the manifest defines the name, so it must be of an older version. */
function mustWait({ worker, workers, podCache }: StaticQueueDeps, pod: DesiredPod): boolean {
  const { uid, namespace, name } = pod.metadata;
  const own = worker.get(uid);
  if (own) return own.phase !== "syncing";
  for (const one of podCache.list()) {
    const isOther = one.uid !== uid && one.namespace === namespace && one.name === name;
    const fromApi = one.sandboxes.every(({ annotations }) => (annotations[configSourceAnnotation] ?? "api") === "api");
    if (isOther && !fromApi && isAlive(one) && !worker.get(one.uid)) workers.terminate(one.uid, undefined);
  }
  return worker.entries().some(([otherUid, other]) => {
    if (otherUid === uid || other.phase === "finished" || (other.pod && !isStaticPod(other.pod))) return false;
    const seen = podCache.get(otherUid);
    const otherName = other.pod ? podFullName(other.pod) : seen && `${seen.namespace}/${seen.name}`;
    return otherName === podFullName(pod);
  });
}
