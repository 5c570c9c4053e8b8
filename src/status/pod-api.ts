import type { ApiClient } from "../api/client.ts";
import { podPath } from "../api/pod-deletion.ts";
import { withoutManagedFields } from "../api/reflector.ts";
import type { Pod } from "../objects.ts";

/** API server requests of the status manager. Coded errors: not_found if there is no such pod; if that name has another UID,
 *  invalid_argument for a patch and conflict for a deletion. */
export interface PodApi {
  get(namespace: string, name: string, signal: AbortSignal): Promise<Pod>;
  /** Sends a strategic merge patch to the status subresource. @param uid a precondition. @returns the updated pod. */
  patchStatus(pod: PodKey, status: object, signal: AbortSignal): Promise<Pod>;
  /** Deletes the object with grace period 0. */
  remove(pod: PodKey, signal: AbortSignal): Promise<void>;
}

/** Creates and deletes mirror pods. */
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

/** A pod by name and UID: the same name may later belong to another pod. */
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
