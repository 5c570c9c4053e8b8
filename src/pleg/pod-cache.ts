import type { PodCache, RuntimePod } from "../pipeline.ts";

/** The writing end of the pod cache: PLEG's alone. */
export interface PodCacheWriter {
  /** Keeps the newer of what is known and what is given. A pod with neither sandbox nor container is forgotten. */
  put(pod: RuntimePod): void;
}

/** What the runtime was last seen to hold. Reader and writer are handed out apart, so that there is one writer. */
export function createPodCache(): { readonly reader: PodCache; readonly writer: PodCacheWriter } {
  const pods = new Map<string, RuntimePod>();
  return {
    reader: { get: (uid) => pods.get(uid), list: () => [...pods.values()] },
    writer: {
      put(pod) {
        const known = pods.get(pod.uid);
        if (known && known.observedAt > pod.observedAt) return;
        if (pod.sandboxes.length === 0 && pod.containers.length === 0) pods.delete(pod.uid);
        else pods.set(pod.uid, pod.ips.length === 0 && known ? { ...pod, ips: known.ips } : pod);
      },
    },
  };
}
