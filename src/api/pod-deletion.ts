import { ignoreCode } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { ApiClient } from "./client.ts";

type PodKey = Pick<Pod["metadata"], "namespace" | "name" | "uid">;

/** Returns the API path of a pod. */
export function podPath({ namespace, name }: Pick<PodKey, "namespace" | "name">): string {
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`;
}

/** Requests deletion of a pod. Does nothing if the pod is gone or was recreated under the same name.
 *  @param options the pod's own grace period by default, seconds. */
export async function deletePod(
  client: Pick<ApiClient, "delete">,
  pod: PodKey,
  options: { readonly gracePeriodSeconds?: number },
  signal: AbortSignal,
): Promise<void> {
  const deleting = client.delete(podPath(pod), { preconditions: { uid: pod.uid }, ...options }, { signal });
  await ignoreCode(deleting, "not_found", "conflict");
}
