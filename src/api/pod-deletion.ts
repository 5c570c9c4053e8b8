import { unlessCode } from "../lib/errors.ts";
import type { Pod } from "../objects.ts";
import type { ApiClient } from "./client.ts";

type PodKey = Pick<Pod["metadata"], "namespace" | "name" | "uid">;

/** Path of a pod's object. */
export function podPath({ namespace, name }: Pick<PodKey, "namespace" | "name">): string {
  return `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(name)}`;
}

/** Asks the API server to delete a pod. One that is gone, or another by that name, is left alone.
 *  @param options the pod's own grace period unless they give one, seconds. */
export async function deletePod(
  client: Pick<ApiClient, "delete">,
  pod: PodKey,
  options: { readonly gracePeriodSeconds?: number },
  signal: AbortSignal,
): Promise<void> {
  const deleting = client.delete(podPath(pod), { preconditions: { uid: pod.uid }, ...options }, { signal });
  await unlessCode(deleting, "not_found", "conflict");
}
