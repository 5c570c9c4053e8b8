import type { PersistentVolume, PersistentVolumeClaim } from "../objects.ts";
import type { Claims } from "../volumes/ports.ts";
import type { ApiClient } from "./client.ts";

/** Reads PersistentVolumeClaims and PersistentVolumes when a pod needs them, as the kubelet does: a node may only read those of its own
 *  pods, and patch the status of their claims.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export function createClaims({ client }: { readonly client: ApiClient }): Claims {
  const pathOf = (namespace: string, name: string) => `/api/v1/namespaces/${namespace}/persistentvolumeclaims/${name}`;
  return {
    claim: (namespace, name, signal) => client.get<PersistentVolumeClaim>(pathOf(namespace, name), { signal }),
    persistentVolume: (name, signal) => client.get<PersistentVolume>(`/api/v1/persistentvolumes/${name}`, { signal }),
    patchStatus: ({ metadata: { namespace, name } }, body, signal) =>
      client.patch<PersistentVolumeClaim>(`${pathOf(namespace, name)}/status`, { type: "strategic", body }, { signal }),
  };
}
