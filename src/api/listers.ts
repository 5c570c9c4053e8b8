import type { Clock } from "../lib/clock.ts";
import type { ClockAndLog } from "../lib/log.ts";
import { type Runnable, untilAborted } from "../lib/runnables.ts";
import type { EndpointSlice, Node, Service } from "../objects.ts";
import type { NodeSource } from "../pipeline.ts";
import type { ServiceLister } from "../runtime/ports.ts";
import type { ApiClient } from "./client.ts";
import { type ApiObject, createReflector } from "./reflector.ts";
import type { OpenWatch, WatchedCollection } from "./shared-watches.ts";
import { createSignal } from "../lib/signal.ts";

export interface ListerDeps extends ClockAndLog {
  readonly client: ApiClient;
}

export interface ServiceWatch extends ServiceLister, Runnable {
  /** Calls the listener after every change. @returns a function that removes the listener. */
  onChange(listener: () => void): () => void;
}

/** Watches Services with a cluster IP, for containers' environment variables and the service tunnel. */
export function createServiceLister(open: OpenWatch): ServiceWatch {
  return createServiceWatch(open, "services", "spec.clusterIP!=None");
}

export function createHeadlessServices(open: OpenWatch): ServiceWatch {
  return createServiceWatch(open, "headless services", "spec.clusterIP=None");
}

function createServiceWatch(open: OpenWatch, name: string, fieldSelector: string): ServiceWatch {
  const { run, synced, list, onChange } = open<Service>({ path: "/api/v1/services", fieldSelector });
  return { name, run, list: () => (synced() ? list() : undefined), onChange };
}

export interface EndpointWatch extends Runnable {
  /** Empty until the first list has completed. */
  list(): readonly EndpointSlice[];
  /** Calls the listener after every change. @returns removes the listener. */
  onChange(listener: () => void): () => void;
}

/** Watches EndpointSlices with the label that the control plane sets for headless Services. Anyone who can write EndpointSlices
 *  can set that label.
 *  @see https://kubernetes.io/docs/reference/labels-annotations-taints/#servicekubernetesioheadless */
export function createHeadlessEndpoints(deps: ListerDeps): EndpointWatch {
  return createEndpointWatch(deps, "headless endpoints", "service.kubernetes.io/headless");
}

/** Watches the EndpointSlices of the Service `kubernetes`, which contain the API servers' addresses. */
export function createServerEndpoints(deps: ListerDeps): EndpointWatch & Required<Runnable> {
  return createEndpointWatch(deps, "API servers", "kubernetes.io/service-name=kubernetes", "default");
}

/** Watches EndpointSlices by label. @param namespace all namespaces by default. */
export function createEndpointWatch(
  deps: ListerDeps,
  name: string,
  labelSelector: string,
  namespace?: string,
): EndpointWatch & Required<Runnable> {
  const path = `/apis/discovery.k8s.io/v1/${namespace === undefined ? "" : `namespaces/${namespace}/`}endpointslices`;
  const { reflector, onChange } = watchObjects<EndpointSlice>(deps, { path, labelSelector });
  return { name, run: reflector.run, ready: reflector.ready, list: reflector.list, onChange };
}

/** Watches the selected objects and notifies listeners of changes. */
function watchObjects<T extends ApiObject>(deps: ListerDeps, which: WatchedCollection) {
  const changed = createSignal();
  const handler = { replace: () => changed.send(), changed: () => changed.send() };
  return { reflector: createReflector<T>({ ...deps, ...which, handler }), onChange: changed.subscribe };
}

export interface NodeWatch extends NodeSource, Runnable {
  /** Resolves once it is known whether the node exists. */
  ready(signal: AbortSignal): Promise<void>;
  synced(): boolean;
  /** Calls the listener on every change; with undefined when the Node is deleted. @returns removes the listener. */
  onChange(listener: (node: Node | undefined) => void): () => void;
}

/** Watches this node's Node object, by name. */
export function createNodeWatch(deps: ListerDeps & { readonly nodeName: string }): NodeWatch {
  const { reflector, onChange } = watchObjects<Node>(deps, {
    path: "/api/v1/nodes",
    fieldSelector: `metadata.name=${deps.nodeName}`,
  });
  const node = () => reflector.get(undefined, deps.nodeName);
  return {
    name: "node watch",
    run: reflector.run,
    ready: reflector.ready,
    synced: reflector.synced,
    node,
    onChange: (listener) => onChange(() => listener(node())),
  };
}

/** Returns the Node watch with a limit on how long `ready` waits for its first list. @param ms the limit, milliseconds. */
export function withFirstListTimeout(nodes: NodeWatch, ms: number, clock: Clock): NodeWatch {
  return {
    ...nodes,
    async ready(signal) {
      const limited = clock.within(ms, signal);
      await untilAborted(nodes.ready(limited), limited).catch(() => undefined);
    },
  };
}

/** Watched Services of the cluster. */
export interface ServiceSource {
  /** Returns undefined until the first list has completed. */
  list(): readonly Service[] | undefined;
  /** Calls the listener after every change. @returns removes the listener. */
  onChange(listener: () => void): () => void;
}
