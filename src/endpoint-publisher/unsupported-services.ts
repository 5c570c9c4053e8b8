import { isIPv4 } from "node:net";
import type { Pod, Service } from "../objects.ts";
import { isEndpointCandidate, selectsPod } from "./service-endpoints.ts";

/** Describes Services that select pods of this node and through which the cluster cannot reach them, or not in every way. Undefined if
 *  there are none. Pure.
 *  @param pods as the API server has them. */
export function unsupportedServicesText(services: readonly Service[], pods: readonly Pod[]): string | undefined {
  const able = pods.filter(isEndpointCandidate);
  const found = services.flatMap((service) => {
    const why = unsupportedReason(service);
    return why !== undefined && able.some((pod) => isEndpointOf(service, pod)) ? [{ service, why }] : [];
  });
  const [first] = found.toSorted((one, other) => (serviceName(one.service) < serviceName(other.service) ? -1 : 1));
  if (!first) return undefined;
  const others = found.length - 1;
  const more = others > 0 ? `, and ${others} more` : "";
  return `the cluster cannot reach pods of this node through ${serviceName(first.service)}: ${first.why}${more}`;
}

const serviceName = ({ metadata }: Service) => `${metadata.namespace}/${metadata.name}`;

function isEndpointOf(service: Service, pod: Pod): boolean {
  return pod.metadata.namespace === service.metadata.namespace && selectsPod(service, pod);
}

/** Why a Service cannot be forwarded into a target; undefined if it can. */
function unsupportedReason({ spec = {} }: Service): string | undefined {
  const { type, clusterIP = "", clusterIPs = [clusterIP], ports = [] } = spec;
  if (type === "ExternalName") return undefined;
  if (clusterIP === "None") return "it is headless, and DNS records carry no ports; give it a clusterIP";
  if (!clusterIPs.some((one) => isIPv4(one))) return "it has no IPv4 address; set ipFamilyPolicy: PreferDualStack";
  if (spec.internalTrafficPolicy === "Local") return "internalTrafficPolicy is Local; set Cluster";
  if (spec.externalTrafficPolicy === "Local") return "externalTrafficPolicy is Local; set Cluster";
  const other = ports.find(({ protocol = "TCP" }) => protocol !== "TCP");
  return other && `its port ${other.port} is ${other.protocol}; only TCP is forwarded`;
}
