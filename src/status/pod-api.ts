import type { ApiClient } from "../api/client.ts";
import { podPath } from "../api/pod-deletion.ts";
import { withoutManagedFields } from "../api/reflector.ts";
import type { Pod } from "../objects.ts";

/** Requests of the status manager to the API server. Errors are coded: not_found when there is no such pod; when one of that name
 *  has another UID, invalid_argument for a patch and conflict for a removal. */
export interface PodApi {
  get(namespace: string, name: string, signal: AbortSignal): Promise<Pod>;
  /** Patches the status subresource by a strategic merge. @param uid a precondition. @returns the pod as it is now. */
  patchStatus(pod: PodKey, status: object, signal: AbortSignal): Promise<Pod>;
  /** Removes the object at once. */
  remove(pod: PodKey, signal: AbortSignal): Promise<void>;
}

/** How mirror pods are made and removed. */
export interface MirrorApi extends Pick<PodApi, "remove"> {
  create(pod: { readonly metadata: { readonly namespace: string } }, signal: AbortSignal): Promise<unknown>;
}

export function createMirrorApi(client: Pick<ApiClient, "get" | "patch" | "delete" | "create">): MirrorApi {
  return {
    ...createPodApi(client),
    create: (pod, signal) =>
      client.create(`/api/v1/namespaces/${encodeURIComponent(pod.metadata.namespace)}/pods`, pod, { signal }),
  };
}

/** A pod by name, and by the UID without which that name may mean another. */
export interface PodKey {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/** @see https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ */
export function createPodApi(client: Pick<ApiClient, "get" | "patch" | "delete">): PodApi {
  return {
    get: async (namespace, name, signal) =>
      withoutManagedFields(await client.get<Pod>(podPath({ namespace, name }), { signal })),
    async patchStatus({ namespace, name, uid }, status, signal) {
      const body = { metadata: { uid }, status };
      const patch = { type: "strategic", body } as const;
      return withoutManagedFields(await client.patch<Pod>(`${podPath({ namespace, name })}/status`, patch, { signal }));
    },
    remove({ namespace, name, uid }, signal) {
      return client.delete(podPath({ namespace, name }), { gracePeriodSeconds: 0, preconditions: { uid } }, { signal });
    },
  };
}
