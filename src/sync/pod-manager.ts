import type { Pod } from "../objects.ts";
import type { PodStore, PodUpdate } from "../pipeline.ts";

/** The pods that the sources want, by UID; the sync loop is its only writer. */
export interface PodManager extends PodStore {
  /** Takes over what an update says of the set of pods. */
  take(update: PodUpdate): void;
}

export function createPodManager(): PodManager {
  const pods = new Map<string, Pod>();
  const uids = new Map<string, string>();
  const key = (namespace: string, name: string) => `${namespace}/${name}`;
  return {
    get: (uid) => pods.get(uid),
    byName: (namespace, name) => pods.get(uids.get(key(namespace, name)) ?? ""),
    list: () => [...pods.values()],
    take({ op, pods: changed }) {
      for (const pod of changed) {
        const { uid, namespace, name } = pod.metadata;
        if (op !== "REMOVE") {
          pods.set(uid, pod);
          uids.set(key(namespace, name), uid);
        } else if (pods.delete(uid) && uids.get(key(namespace, name)) === uid) uids.delete(key(namespace, name));
      }
    },
  };
}
