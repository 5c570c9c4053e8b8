import { isIPv4 } from "node:net";
import type { Pod, Service } from "../objects.ts";
import { isSidecar } from "../pod/containers.ts";
import { isTerminal } from "../pod/phase.ts";

/** A pod of this node as an endpoint of a Service. */
export interface ServiceEndpoint {
  readonly service: Service;
  readonly pod: Pod;
  readonly conditions: { readonly ready: boolean; readonly serving: boolean; readonly terminating: boolean };
  /** TCP ports; at least one. */
  readonly ports: readonly ServiceEndpointPort[];
}

export interface ServiceEndpointPort {
  readonly name: string;
  readonly target: number;
  readonly appProtocol?: string;
}

/** Returns the pods that are TCP endpoints of Services with an IPv4 cluster IP, by the rules of the cluster's endpoint slice controller.
 *  Host network pods are omitted, because they have the machine's address. Pure.
 *  @param pods as the API server has them.
 *  @see https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/ */
export function serviceEndpoints(services: readonly Service[], pods: readonly Pod[]): readonly ServiceEndpoint[] {
  const able = Map.groupBy(pods.filter(isEndpointCandidate), ({ metadata }) => metadata.namespace);
  return services.filter(isPublishable).flatMap((service) => {
    const chosen = able.get(service.metadata.namespace)?.filter((pod) => selectsPod(service, pod));
    return (chosen ?? []).flatMap((pod) => {
      const ports = endpointPorts(service, pod);
      return ports.length > 0 ? [{ service, pod, conditions: endpointConditions(service, pod), ports }] : [];
    });
  });
}

function isPublishable({ spec }: Service): boolean {
  return spec?.type !== "ExternalName" && (spec?.clusterIPs ?? [spec?.clusterIP ?? ""]).some((one) => isIPv4(one));
}

/** True for a pod with its own IPv4 address, not the host's, that is not terminal. */
export function isEndpointCandidate({ spec, status }: Pod): boolean {
  return spec.hostNetwork !== true && !isTerminal(status?.phase) && isIPv4(status?.podIP ?? "");
}

/** True if the Service has a selector and the pod's labels match it. */
export function selectsPod({ spec }: Service, { metadata: { labels = {} } }: Pod): boolean {
  const wanted = Object.entries(spec?.selector ?? {});
  return wanted.length > 0 && wanted.every(([key, value]) => labels[key] === value);
}

function endpointConditions({ spec }: Service, { metadata, status }: Pod): ServiceEndpoint["conditions"] {
  const serving = status?.conditions?.some(({ type, status: is }) => type === "Ready" && is === "True") === true;
  const terminating = metadata.deletionTimestamp !== undefined;
  return { ready: spec?.publishNotReadyAddresses === true || (serving && !terminating), serving, terminating };
}

function endpointPorts({ spec }: Service, pod: Pod): readonly ServiceEndpointPort[] {
  return (spec?.ports ?? []).flatMap(({ name = "", port, protocol = "TCP", targetPort, appProtocol }) => {
    const target = protocol === "TCP" ? resolveTargetPort(pod, targetPort ?? port) : undefined;
    return target === undefined ? [] : [{ name, target, ...(appProtocol !== undefined && { appProtocol }) }];
  });
}

/** Resolves a target port; a name is looked up in the main containers and sidecars. */
function resolveTargetPort({ spec }: Pod, port: number | string): number | undefined {
  if (typeof port === "number") return port;
  const all = [...spec.containers, ...(spec.initContainers ?? []).filter(isSidecar)];
  const ports = all.flatMap((container) => container.ports ?? []);
  return ports.find(({ name, protocol = "TCP" }) => name === port && protocol === "TCP")?.containerPort;
}
