import type { Clock } from "../lib/clock.ts";
import type { Logger } from "../lib/log.ts";
import type { Service as Running } from "../lib/service-group.ts";
import type { EndpointSlice, Node, Service } from "../objects.ts";
import type { NodeSource, ServiceLister } from "../pipeline.ts";
import type { ApiClient } from "./client.ts";
import { type ApiObject, createReflector, type ReflectorOptions } from "./reflector.ts";

export interface ListerDeps {
  readonly client: ApiClient;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface ServiceWatch extends ServiceLister, Running {
  /** Calls back after every change. @returns what stops that. */
  onChange(listener: () => void): () => void;
}

/** Services with a cluster IP, for the environment of containers and the way that pods have to them. */
export function createServiceLister(deps: ListerDeps): ServiceWatch {
  return createServiceWatch(deps, "services", "spec.clusterIP!=None");
}

/** Headless Services. */
export function createHeadlessServices(deps: ListerDeps): ServiceWatch {
  return createServiceWatch(deps, "headless services", "spec.clusterIP=None");
}

function createServiceWatch(deps: ListerDeps, name: string, fieldSelector: string): ServiceWatch {
  const { reflector, onChange } = observe<Service>(deps, { path: "/api/v1/services", fieldSelector });
  const list = () => (reflector.synced() ? reflector.list() : undefined);
  return { name, run: reflector.run, list, onChange };
}

export interface EndpointWatch extends Running {
  /** Empty until they have been read once. */
  list(): readonly EndpointSlice[];
  /** Calls back after every change. @returns what stops that. */
  onChange(listener: () => void): () => void;
}

/** Endpoints that bear the label by which the control plane marks those of headless Services. Whoever writes EndpointSlices may set it.
 *  @see https://kubernetes.io/docs/reference/labels-annotations-taints/#servicekubernetesioheadless */
export function createHeadlessEndpoints(deps: ListerDeps): EndpointWatch {
  return createEndpointWatch(deps, "headless endpoints", "service.kubernetes.io/headless");
}

/** Endpoints of the Service `kubernetes`: the API servers. */
export function createServerEndpoints(deps: ListerDeps): EndpointWatch & Required<Running> {
  return createEndpointWatch(deps, "API servers", "kubernetes.io/service-name=kubernetes", "default");
}

/** Endpoints that bear a label. @param namespace where they lie; all of them unless given. */
export function createEndpointWatch(
  deps: ListerDeps,
  name: string,
  labelSelector: string,
  namespace?: string,
): EndpointWatch & Required<Running> {
  const path = `/apis/discovery.k8s.io/v1/${namespace === undefined ? "" : `namespaces/${namespace}/`}endpointslices`;
  const { reflector, onChange } = observe<EndpointSlice>(deps, { path, labelSelector });
  return { name, run: reflector.run, ready: reflector.ready, list: reflector.list, onChange };
}

type Which = Pick<ReflectorOptions<ApiObject>, "path" | "fieldSelector" | "labelSelector">;

/** A copy of some objects that tells of its changes. */
function observe<T extends ApiObject>(deps: ListerDeps, which: Which) {
  const listeners = new Set<() => void>();
  const tell = () => listeners.forEach((listener) => listener());
  const reflector = createReflector<T>({ ...deps, ...which, handler: { replace: tell, changed: tell } });
  const onChange = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  return { reflector, onChange };
}

export interface NodeWatch extends NodeSource, Running {
  /** Resolves once it is known whether the node exists. */
  ready(signal: AbortSignal): Promise<void>;
  synced(): boolean;
  /** Calls back on every change; with undefined when the node is gone. @returns what stops that. */
  onChange(listener: (node: Node | undefined) => void): () => void;
}

/** This node's object, watched by name. */
export function createNodeWatch(deps: ListerDeps & { readonly nodeName: string }): NodeWatch {
  const { reflector, onChange } = observe<Node>(deps, {
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
