import { ignoreNotFound } from "../lib/errors.ts";
import type { ClusterMeta, WrittenSlice } from "../objects.ts";
import { applyObject } from "./apply.ts";
import type { ApiClient } from "./client.ts";
import { type ListerDeps, createEndpointWatch } from "./listers.ts";

export type OwnSlices = ReturnType<typeof createOwnSlices>;

/** Watches and writes the EndpointSlices that graftlet creates.
 *  @param labelSelector matches only those EndpointSlices. */
export function createOwnSlices(deps: ListerDeps, labelSelector: string) {
  const { client } = deps;
  return {
    ...createEndpointWatch(deps, "own endpoints", labelSelector),
    put: (slice: WrittenSlice, signal: AbortSignal) => putSlice(client, slice, signal),
    /** Deletes the slice, if it exists. */
    async delete(slice: WrittenSlice, signal: AbortSignal) {
      const { uid } = slice.metadata;
      await ignoreNotFound(client.delete(pathOf(slice), uid ? { preconditions: { uid } } : undefined, { signal }));
    },
  };
}

/** Creates or replaces a slice. */
export async function putSlice(
  client: Pick<ApiClient, "patch">,
  slice: WrittenSlice,
  signal: AbortSignal,
): Promise<void> {
  await applyObject(client, pathOf(slice), slice, signal);
}

function pathOf({ metadata: { namespace, name } }: WrittenSlice): string {
  return `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices/${encodeURIComponent(name)}`;
}

/** Owner of the slices: they are garbage-collected once it is deleted. It is cluster-scoped, because the slices are in several
 *  namespaces. */
export interface SliceOwner {
  readonly apiVersion: string;
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
}

const clusterRoleKind = { apiVersion: "rbac.authorization.k8s.io/v1", kind: "ClusterRole" };

/** Returns the ClusterRole of that name as the owner of slices. @throws ApiError if it cannot be read. */
export async function clusterRoleOwner(
  client: Pick<ApiClient, "get">,
  name: string,
  signal: AbortSignal,
): Promise<SliceOwner> {
  const path = `/apis/${clusterRoleKind.apiVersion}/clusterroles/${encodeURIComponent(name)}`;
  const { metadata } = await client.get<{ readonly metadata: ClusterMeta }>(path, { signal });
  return { ...clusterRoleKind, name, uid: metadata.uid ?? "" };
}
