import type { ClockAndLog } from "../lib/log.ts";
import { onAbort } from "../lib/runnables.ts";
import { createSignal } from "../lib/signal.ts";
import type { ApiClient, CallOptions } from "./client.ts";
import type { ClusterAccess } from "./kubeconfig.ts";
import { type ApiObject, createReflector, type Reflector, type ReflectorOptions } from "./reflector.ts";

export type Cluster = ClusterAccess["cluster"];

/** Identifies a cluster, which kubeconfigs may name differently. */
export function clusterKey(cluster: Cluster | undefined): string {
  return JSON.stringify({ ...cluster, name: undefined });
}

/** Which objects a watch contains. */
export type WatchedCollection = Pick<ReflectorOptions<ApiObject>, "path" | "fieldSelector" | "labelSelector">;

/** A local copy of a collection that notifies of changes. */
export interface Watch<T> extends Reflector<T> {
  /** Calls the listener after every change. @returns removes the listener. */
  onChange(listener: () => void): () => void;
}

/** Returns a watch of a collection, which works while it runs. */
export type OpenWatch = <T extends ApiObject>(collection: WatchedCollection) => Watch<T>;

/** What a watch asks the API server with. */
type WatchClient = Pick<ApiClient, "list" | "watch">;

export type SharedWatches = ReturnType<typeof createSharedWatches>;

/** Watches that the nodes of this process have in common: one list and one watch per collection and cluster, whatever the number of nodes.
 *  Each is read with the credentials of one of the nodes that run it, and of the next one when that node stops or is refused. */
export function createSharedWatches(deps: ClockAndLog) {
  const watches = new Map<string, ReturnType<typeof createSharedWatch>>();
  return {
    /** Returns how a node opens watches. All nodes of a cluster must be allowed to read the collections. */
    openWith(cluster: Cluster | undefined, client: WatchClient): OpenWatch {
      return <T extends ApiObject>(collection: WatchedCollection) => {
        const key = JSON.stringify([clusterKey(cluster), collection]);
        const watch = watches.get(key) ?? createSharedWatch(deps, collection, () => watches.delete(key));
        watches.set(key, watch);
        const opened: Watch<ApiObject> = watch.openWith(client);
        // The path determines the type.
        return opened as Watch<T>;
      };
    },
  };
}

/** @param onIdle called when no node runs the watch any more. */
function createSharedWatch(deps: ClockAndLog, collection: WatchedCollection, onIdle: () => void) {
  const changed = createSignal();
  /** Clients of the nodes that run the watch. The first one is used. */
  const clients: WatchClient[] = [];
  let turn = new AbortController();
  let running: Promise<void> | undefined;
  /** Another client may be allowed what this one is not. */
  const giveUp = (client: WatchClient) => {
    if (clients[0] === client) clients.push(...clients.splice(0, 1));
  };
  const first = (): WatchClient => {
    const [client] = clients;
    if (!client) throw new Error(`cannot read ${collection.path}: no node watches it`);
    return client;
  };
  const reflector = createReflector<ApiObject>({
    ...deps,
    ...collection,
    client: {
      async list(path, options) {
        const client = first();
        return client.list<never>(path, options).catch((error: unknown) => {
          giveUp(client);
          throw error;
        });
      },
      async *watch<T>(path: string, options: CallOptions) {
        const client = first();
        try {
          yield* client.watch<T>(path, options);
        } catch (error) {
          giveUp(client);
          throw error;
        }
      },
    },
    handler: { replace: changed.send, changed: changed.send },
  });
  const work = async () => {
    while (clients.length > 0) {
      turn = new AbortController();
      await reflector.run(turn.signal);
    }
    running = undefined;
    onIdle();
  };
  const run = async (client: WatchClient, signal: AbortSignal) => {
    if (signal.aborted) return;
    clients.push(client);
    running ??= work();
    await onAbort(signal);
    const isUsed = clients[0] === client;
    clients.splice(clients.indexOf(client), 1);
    if (!isUsed) return;
    turn.abort();
    if (clients.length === 0) await running;
  };
  return {
    openWith(client: WatchClient): Watch<ApiObject> {
      /** Listeners of one node: they end with its run, while the watch of the others goes on. */
      const own = createSignal();
      return {
        ...reflector,
        onChange: own.subscribe,
        async run(signal) {
          const unsubscribe = changed.subscribe(own.send);
          // The node has not heard of objects that others have listed before.
          if (reflector.synced()) queueMicrotask(own.send);
          await run(client, signal).finally(unsubscribe);
        },
      };
    },
  };
}
