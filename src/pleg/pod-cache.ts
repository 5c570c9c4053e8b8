import type { RuntimePod } from "../pipeline.ts";
import type { ColumnWriter } from "../state/rows.ts";

/** Keeps the newer of what is known of a pod and what is given. A pod with neither sandbox nor container is dropped; one whose
 *  sandbox has lost its addresses keeps those that it had. */
export function keepNewest(seen: ColumnWriter<RuntimePod>, pod: RuntimePod): void {
  const known = seen.get(pod.uid);
  if (known && known.observedAt > pod.observedAt) return;
  if (pod.sandboxes.length === 0 && pod.containers.length === 0) seen.delete(pod.uid);
  else seen.set(pod.uid, pod.ips.length === 0 && known ? { ...pod, ips: known.ips } : pod);
}
