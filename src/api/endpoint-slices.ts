import { hasCode } from "../lib/errors.ts";
import type { EndpointSlice } from "../objects.ts";
import { type ListerDeps, type EndpointWatch, createEndpointWatch } from "./listers.ts";

type Unmade = Omit<EndpointSlice, "metadata"> & { readonly metadata: Omit<EndpointSlice["metadata"], "uid"> };

export interface OwnSlices extends EndpointWatch {
  ready(signal: AbortSignal): Promise<void>;
  /** Makes the slice, or makes it as it is here. */
  put(slice: Unmade, signal: AbortSignal): Promise<void>;
  /** Nothing happens where it is gone. */
  drop(slice: Unmade & { readonly metadata: { readonly uid?: string } }, signal: AbortSignal): Promise<void>;
}

/** EndpointSlices of one's own making, watched and written.
 *  @param labelSelector by which they are told from others'. */
export function createOwnSlices(deps: ListerDeps, labelSelector: string): OwnSlices {
  const { client } = deps;
  const pathOf = ({ metadata: { namespace, name } }: Unmade) =>
    `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices/${encodeURIComponent(name)}`;
  const query = { fieldManager: "graftlet", force: true };
  return {
    ...createEndpointWatch(deps, "own endpoints", labelSelector),
    async put(slice, signal) {
      await client.patch<EndpointSlice>(pathOf(slice), { type: "apply", body: slice }, { signal, query });
    },
    async drop(slice, signal) {
      const { uid } = slice.metadata;
      await client
        .delete(pathOf(slice), uid ? { preconditions: { uid } } : undefined, { signal })
        .catch((error: unknown) => {
          if (!hasCode(error, "not_found")) throw error;
        });
    },
  };
}
