import type { PodCache } from "../pipeline.ts";
import { isStaticPod } from "../pod/containers.ts";
import { configSourceAnnotation } from "../pod/labels.ts";
import { fullName } from "../pod/reference.ts";
import { isAlive } from "../pod/sandbox.ts";
import type { AskedPod } from "../roles.ts";
import type { WorkerView } from "../state/pod-table.ts";
import type { Column } from "../state/rows.ts";
import type { PodWorkers } from "./pod-workers.ts";

export interface StaticQueueDeps {
  readonly worker: Column<WorkerView>;
  readonly workers: Pick<PodWorkers, "terminate">;
  readonly cache: PodCache;
}

/** Static pods that wait until another of their name, or they themselves from before they were taken away, have ended: a new version
 *  begins when the old one has, and not beside it. In the order they came. */
export interface StaticQueue {
  /** Keeps the pod if it must wait. */
  hold(pod: AskedPod): boolean;
  /** Takes a newer version of one that waits. */
  update(pod: AskedPod): boolean;
  /** The pod is not wanted any more. @returns true where it waited. */
  drop(uid: string): boolean;
  has(uid: string): boolean;
  /** The pods that must wait no longer; they are not kept. */
  free(): readonly AskedPod[];
}

export function createStaticQueue(deps: StaticQueueDeps): StaticQueue {
  const waiting = new Map<string, AskedPod>();
  const keep = (pod: AskedPod) => void waiting.set(pod.metadata.uid, pod);
  return {
    hold(pod) {
      const waits = mustWait(deps, pod);
      if (waits) keep(pod);
      return waits;
    },
    update(pod) {
      const waits = waiting.has(pod.metadata.uid);
      if (waits) keep(pod);
      return waits;
    },
    drop: (uid) => waiting.delete(uid),
    has: (uid) => waiting.has(uid),
    free() {
      const free = [...waiting.values()].filter((pod) => !mustWait(deps, pod));
      for (const { metadata } of free) waiting.delete(metadata.uid);
      return free;
    },
  };
}

/** True while a static pod of the same name, or this one from before its removal, has not ended. One that only the runtime
 *  has is ended for it: names are given by manifests, and what runs under one that is given anew is of an older version. */
function mustWait({ worker, workers, cache }: StaticQueueDeps, pod: AskedPod): boolean {
  const { uid, namespace, name } = pod.metadata;
  const own = worker.get(uid);
  if (own) return own.phase !== "syncing";
  for (const one of cache.list()) {
    const isOther = one.uid !== uid && one.namespace === namespace && one.name === name;
    const fromApi = one.sandboxes.every(({ annotations }) => (annotations[configSourceAnnotation] ?? "api") === "api");
    if (isOther && !fromApi && isAlive(one) && !worker.get(one.uid)) workers.terminate(one.uid, undefined);
  }
  return worker.entries().some(([otherUid, other]) => {
    if (otherUid === uid || other.phase === "finished" || (other.pod && !isStaticPod(other.pod))) return false;
    const seen = cache.get(otherUid);
    const otherName = other.pod ? fullName(other.pod) : seen && `${seen.namespace}/${seen.name}`;
    return otherName === fullName(pod);
  });
}
