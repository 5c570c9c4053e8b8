import { isIPv6 } from "node:net";
import { PortMapping, Protocol } from "../gen/cri.ts";
import type { Container, Pod } from "../objects.ts";

type ContainerPort = NonNullable<Container["ports"]>[number];

const protocols: Readonly<Record<string, Protocol>> = { TCP: Protocol.TCP, UDP: Protocol.UDP, SCTP: Protocol.SCTP };

/** Port mappings of a pod's main containers for its sandbox; a host port of 0 publishes nothing. Of ports with equal names, or equal
 *  numbers without a name, the first counts. (kubelet; init containers' ports are not passed) */
export function portMappings(pod: Pod): PortMapping[] {
  return pod.spec.containers.flatMap(({ ports = [] }) => {
    const byName = new Map<string, ContainerPort>();
    for (const port of ports) if (!byName.has(portKey(port))) byName.set(portKey(port), port);
    return [...byName.values()].map(toMapping);
  });
}

function toMapping({ protocol, containerPort, hostPort, hostIP }: ContainerPort): PortMapping {
  return PortMapping.fromPartial({
    protocol: protocols[protocol ?? "TCP"] ?? Protocol.TCP,
    containerPort,
    hostPort: hostPort ?? 0,
    hostIp: hostIP ?? "",
  });
}

function portKey({ name, protocol, containerPort, hostPort, hostIP = "" }: ContainerPort): string {
  const family = hostIP === "" ? "any" : isIPv6(hostIP) ? "v6" : "v4";
  return name || `${family}-${protocol ?? "TCP"}-${hostIP}:${containerPort}:${hostPort ?? 0}`;
}
