import { ignoreNotFound } from "../lib/errors.ts";
import type { EndpointSlice, WrittenSlice } from "../objects.ts";
import { type ListerDeps, type EndpointWatch, createEndpointWatch } from "./listers.ts";

export interface OwnSlices extends EndpointWatch {
  ready(signal: AbortSignal): Promise<void>;
  /** Creates or replaces the slice. */
  put(slice: WrittenSlice, signal: AbortSignal): Promise<void>;
  /** Deletes the slice, if it exists. */
  delete(slice: WrittenSlice, signal: AbortSignal): Promise<void>;
}

/** EndpointSlices that graftlet creates itself, watched and written.
 *  @param labelSelector distinguishes them from others. */
export function createOwnSlices(deps: ListerDeps, labelSelector: string): OwnSlices {
  const { client } = deps;
  const pathOf = ({ metadata: { namespace, name } }: WrittenSlice) =>
    `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices/${encodeURIComponent(name)}`;
  const query = { fieldManager: "graftlet", force: true };
  return {
    ...createEndpointWatch(deps, "own endpoints", labelSelector),
    async put(slice, signal) {
      await client.patch<EndpointSlice>(pathOf(slice), { type: "apply", body: slice }, { signal, query });
    },
    async delete(slice, signal) {
      const { uid } = slice.metadata;
      await ignoreNotFound(client.delete(pathOf(slice), uid ? { preconditions: { uid } } : undefined, { signal }));
    },
  };
}
