import { isIPv4, isIPv6 } from "node:net";
import type { EndpointSlice, Service } from "../objects.ts";
import { clusterDnsService } from "../pod/dns.ts";

/** Addresses and ports of the cluster that pods reach through the tunnel, each as `address:port`, sorted. */
export interface Destinations {
  readonly tcp: readonly string[];
  /** Services with the fewest UDP ports come first, as the target may run out of ports. */
  readonly udp: readonly string[];
  /** Cluster addresses of Services. */
  readonly addresses: readonly string[];
  /** IPv6 cluster addresses, which are not forwarded. */
  readonly addressesIPv6: readonly string[];
}

/** Returns true if pods may reach a Service. */
export type ServiceFilter = (service: Pick<Service, "metadata" | "spec">) => boolean;

const allServices: ServiceFilter = () => true;

/** Restricts pods to the Services of some namespaces; the API server and the cluster's DNS are always allowed.
 *  @param namespaces undefined for all.
 *  @param dns configured addresses of the cluster's DNS. */
export function serviceFilter(namespaces: readonly string[] | undefined, dns: readonly string[]): ServiceFilter {
  if (!namespaces) return allServices;
  return ({ metadata: { namespace, name }, spec }) =>
    namespaces.includes(namespace) ||
    ["default/kubernetes", clusterDnsService].includes(`${namespace}/${name}`) ||
    (spec?.clusterIPs ?? []).some((address) => dns.includes(address));
}

/** Returns the destinations of Services: the ports of their IPv4 cluster addresses. ExternalName and headless Services have none.
 *  For a Service that pods may not reach, only the addresses are included. Pure.
 *  @see https://kubernetes.io/docs/concepts/services-networking/service/ */
export function destinationsOf(
  services: readonly Pick<Service, "metadata" | "spec">[],
  reaches: ServiceFilter = allServices,
): Destinations {
  const tcp = new Set<string>();
  const udp = new Map<string, number>();
  const addresses = new Set<string>();
  const addressesIPv6 = new Set<string>();
  for (const service of services) {
    const { spec } = service;
    if (spec?.type === "ExternalName") continue;
    const within = reaches(service);
    const all = spec?.clusterIPs ?? [spec?.clusterIP ?? ""];
    for (const address of all) if (isIPv6(address)) addressesIPv6.add(address);
    const own = all.filter((address) => isIPv4(address));
    for (const address of own) {
      addresses.add(address);
      if (!within) continue;
      const ports = spec?.ports ?? [];
      const datagrams = ports.filter(({ protocol }) => protocol === "UDP");
      for (const { port, protocol = "TCP" } of ports) if (protocol === "TCP") tcp.add(`${address}:${port}`);
      for (const { port } of datagrams) udp.set(`${address}:${port}`, datagrams.length);
    }
  }
  const inTurn = [...udp.keys()].sort().sort((one, other) => (udp.get(one) ?? 0) - (udp.get(other) ?? 0));
  const sorted = (all: ReadonlySet<string>) => [...all].sort();
  return { tcp: sorted(tcp), udp: inTurn, addresses: sorted(addresses), addressesIPv6: sorted(addressesIPv6) };
}

/** Returns the endpoints of headless Services as `address:port`, sorted; TCP only. Endpoints on this node are omitted, as pods reach them
 *  directly. Pure.
 *  @param services headless Services; endpoints of other Services are omitted, regardless of their labels.
 *  @see https://kubernetes.io/docs/concepts/services-networking/service/#headless-services */
export function headlessDestinations(
  slices: readonly EndpointSlice[],
  services: readonly Pick<Service, "metadata" | "spec">[],
  nodeName: string,
  reaches: ServiceFilter = allServices,
): readonly string[] {
  const within = services.filter((service) => service.spec?.clusterIP === "None" && reaches(service));
  const names = new Set(within.map(({ metadata: { namespace, name } }) => `${namespace}/${name}`));
  const found = new Set<string>();
  for (const { metadata, addressType, endpoints, ports } of slices) {
    const service = `${metadata.namespace}/${metadata.labels?.["kubernetes.io/service-name"]}`;
    if (addressType !== "IPv4" || !names.has(service)) continue;
    const elsewhere = (endpoints ?? []).filter((endpoint) => endpoint.nodeName !== nodeName);
    for (const address of elsewhere.flatMap((endpoint) => endpoint.addresses).filter((one) => isIPv4(one)))
      for (const { port, protocol = "TCP" } of ports ?? [])
        if (protocol === "TCP" && port !== undefined) found.add(`${address}:${port}`);
  }
  return [...found].sort();
}

/** Returns the distinct addresses of destinations. */
export function destinationHosts(destinations: readonly string[]): readonly string[] {
  return [...new Set(destinations.flatMap((to) => parseDestination(to)?.host ?? []))];
}

/** Parses the canonical form of `address:port`, without leading zeros; undefined for anything else. */
export function parseDestination(text: string): { readonly host: string; readonly port: number } | undefined {
  const [, host = "", digits = ""] = /^([0-9.]{7,15}):([1-9][0-9]{0,4})$/.exec(text) ?? [];
  const port = Number(digits);
  return isIPv4(host) && port > 0 && port < 65_536 ? { host, port } : undefined;
}
