import { unlessGone } from "../lib/errors.ts";
import type { EndpointSlice, WrittenSlice } from "../objects.ts";
import { type ListerDeps, type EndpointWatch, createEndpointWatch } from "./listers.ts";

export interface OwnSlices extends EndpointWatch {
  ready(signal: AbortSignal): Promise<void>;
  /** Makes the slice, or makes it as it is here. */
  put(slice: WrittenSlice, signal: AbortSignal): Promise<void>;
  /** Nothing happens where it is gone. */
  drop(slice: WrittenSlice, signal: AbortSignal): Promise<void>;
}

/** EndpointSlices of one's own making, watched and written.
 *  @param labelSelector by which they are told from others'. */
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
    async drop(slice, signal) {
      const { uid } = slice.metadata;
      await unlessGone(client.delete(pathOf(slice), uid ? { preconditions: { uid } } : undefined, { signal }));
    },
  };
}
