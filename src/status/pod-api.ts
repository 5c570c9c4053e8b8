import type { ApiClient } from "../api/client.ts";
import { podPath } from "../api/pod-deletion.ts";
import { withoutManagedFields } from "../api/reflector.ts";
import type { Pod } from "../objects.ts";

/** API server requests of the status manager. Coded errors: not_found if there is no such pod; if that name has another UID,
 *  invalid_argument for a patch and conflict for a deletion. */
export type PodApi = Omit<ReturnType<typeof createPodApi>, "create">;

/** A pod by name and UID: the same name may later belong to another pod. */
export interface PodKey {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ */
export function createPodApi(client: Pick<ApiClient, "create" | "get" | "patch" | "delete">) {
  return {
    create: (pod: { readonly metadata: { readonly namespace: string } }, signal: AbortSignal) =>
      client.create(`/api/v1/namespaces/${encodeURIComponent(pod.metadata.namespace)}/pods`, pod, { signal }),
    get: async (namespace: string, name: string, signal: AbortSignal) =>
      withoutManagedFields(await client.get<Pod>(podPath({ namespace, name }), { signal })),
    /** Sends a strategic merge patch to the status subresource. @param uid a precondition. @returns the updated pod. */
    async patchStatus({ namespace, name, uid }: PodKey, status: object, signal: AbortSignal) {
      const body = { metadata: { uid }, status };
      const patch = { type: "strategic", body } as const;
      return withoutManagedFields(await client.patch<Pod>(`${podPath({ namespace, name })}/status`, patch, { signal }));
    },
    /** Deletes the object with grace period 0. */
    remove({ namespace, name, uid }: PodKey, signal: AbortSignal) {
      return client.delete(podPath({ namespace, name }), { gracePeriodSeconds: 0, preconditions: { uid } }, { signal });
    },
  };
}
