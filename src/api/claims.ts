import type { PersistentVolume, PersistentVolumeClaim } from "../objects.ts";
import type { ClaimReader } from "../pipeline.ts";
import type { ApiClient } from "./client.ts";

/** Reads claims and volumes when a pod needs them, as the kubelet does: what a node may read are those of its own pods.
 *  @see https://kubernetes.io/docs/reference/access-authn-authz/node/ */
export function createClaimReader({ client }: { readonly client: ApiClient }): ClaimReader {
  return {
    claim: (namespace, name, signal) =>
      client.get<PersistentVolumeClaim>(`/api/v1/namespaces/${namespace}/persistentvolumeclaims/${name}`, { signal }),
    persistentVolume: (name, signal) => client.get<PersistentVolume>(`/api/v1/persistentvolumes/${name}`, { signal }),
  };
}
