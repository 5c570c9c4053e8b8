import type { Clock } from "../lib/clock.ts";
import { untilAborted } from "../lib/runnables.ts";
import type { ApiClient, CallOptions } from "./client.ts";
import { type Cluster, clusterKey } from "./shared-watches.ts";

/** Reads objects that are the same for all nodes of a cluster. */
export type SharedReader = Pick<ApiClient, "get">;

export type SharedReads = ReturnType<typeof createSharedReads>;

/** Age up to which a response is used again, milliseconds: long enough for nodes that start together. */
const maxAgeMs = 10_000;

/** Reads that the nodes of this process have in common: one request per path and cluster within ten seconds, whatever the number of nodes. */
export function createSharedReads(clock: Pick<Clock, "monotonic">) {
  const reads = new Map<string, { readonly at: number; readonly response: Promise<unknown> }>();
  return {
    /** Returns how a node reads such objects. All nodes of a cluster must be allowed to read them. */
    openWith(cluster: Cluster | undefined, client: SharedReader): SharedReader {
      const send = async (key: string, path: string, options: CallOptions) => {
        const response = client.get<unknown>(path, options);
        reads.set(key, { at: clock.monotonic(), response });
        try {
          return await response;
        } catch (error) {
          if (reads.get(key)?.response === response) reads.delete(key);
          throw error;
        }
      };
      return {
        async get<T>(path: string, options: CallOptions): Promise<T> {
          const key = JSON.stringify([clusterKey(cluster), path, options.query]);
          const known = reads.get(key);
          const isUsable = known && clock.monotonic() - known.at < maxAgeMs;
          // Another node may not be allowed what this one is, or may have been stopped.
          const shared = isUsable && (await untilAborted(known.response, options.signal).catch(() => undefined));
          // The path determines the type.
          return (shared || (await send(key, path, options))) as T;
        },
      };
    },
  };
}
