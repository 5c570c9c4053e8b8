import { isIPv4 } from "node:net";
import type { Pod, Service } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { isTerminal } from "../pod/phase.ts";

/** A Service's endpoint that a pod of this node is. */
export interface ServedEndpoint {
  readonly service: Service;
  readonly pod: Pod;
  readonly conditions: { readonly ready: boolean; readonly serving: boolean; readonly terminating: boolean };
  /** Ports for connections; at least one. */
  readonly ports: readonly ServedPort[];
}

export interface ServedPort {
  readonly name: string;
  /** Port of the pod. */
  readonly target: number;
  readonly appProtocol?: string;
}

/** Endpoints that pods are of Services with a cluster address in IPv4, for connections, by the rules of the cluster's own controller. A
 *  pod on its machine's own network is none: its address is not its own. Pure.
 *  @param pods as the API server has them.
 *  @see https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/ */
export function servedEndpoints(services: readonly Service[], pods: readonly Pod[]): readonly ServedEndpoint[] {
  const able = Map.groupBy(pods.filter(canServe), ({ metadata }) => metadata.namespace);
  return services.filter(isServable).flatMap((service) => {
    const chosen = able.get(service.metadata.namespace)?.filter((pod) => selects(service, pod));
    return (chosen ?? []).flatMap((pod) => {
      const ports = portsOf(service, pod);
      return ports.length > 0 ? [{ service, pod, conditions: conditionsOf(service, pod), ports }] : [];
    });
  });
}

function isServable({ spec }: Service): boolean {
  return spec?.type !== "ExternalName" && (spec?.clusterIPs ?? [spec?.clusterIP ?? ""]).some((one) => isIPv4(one));
}

/** True for a pod with an address of its own that is not over. */
export function canServe({ spec, status }: Pod): boolean {
  return spec.hostNetwork !== true && !isTerminal(status?.phase) && isIPv4(status?.podIP ?? "");
}

/** True where the labels of a pod are those that a Service asks for, which asks for some. */
export function selects({ spec }: Service, { metadata: { labels = {} } }: Pod): boolean {
  const wanted = Object.entries(spec?.selector ?? {});
  return wanted.length > 0 && wanted.every(([key, value]) => labels[key] === value);
}

function conditionsOf({ spec }: Service, { metadata, status }: Pod): ServedEndpoint["conditions"] {
  const serving = status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
  const terminating = metadata.deletionTimestamp !== undefined;
  return { ready: spec?.publishNotReadyAddresses === true || (serving && !terminating), serving, terminating };
}

function portsOf({ spec }: Service, pod: Pod): readonly ServedPort[] {
  return (spec?.ports ?? []).flatMap(({ name = "", port, protocol = "TCP", targetPort, appProtocol }) => {
    const target = protocol === "TCP" ? targetOf(pod, targetPort ?? port) : undefined;
    return target === undefined ? [] : [{ name, target, ...(appProtocol !== undefined && { appProtocol }) }];
  });
}

/** A name is that of a port of one of the containers that run while the pod serves. */
function targetOf({ spec }: Pod, port: number | string): number | undefined {
  if (typeof port === "number") return port;
  const all = [...spec.containers, ...(spec.initContainers ?? []).filter(isSidecar)];
  const ports = all.flatMap((container) => container.ports ?? []);
  return ports.find(({ name, protocol = "TCP" }) => name === port && protocol === "TCP")?.containerPort;
}
