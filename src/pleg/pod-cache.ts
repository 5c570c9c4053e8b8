import type { RuntimePod } from "../pipeline.ts";
import type { ColumnWriter } from "../state/records.ts";

/** Caches an observation unless a newer one is cached. A pod with neither sandboxes nor containers is dropped; one whose
 *  sandbox has lost its addresses keeps the previous ones. */
export function cacheNewest(podCache: ColumnWriter<RuntimePod>, pod: RuntimePod): void {
  const known = podCache.get(pod.uid);
  if (known && known.observedAt > pod.observedAt) return;
  if (pod.sandboxes.length === 0 && pod.containers.length === 0) podCache.delete(pod.uid);
  else podCache.set(pod.uid, pod.ips.length === 0 && known ? { ...pod, ips: known.ips } : pod);
}
