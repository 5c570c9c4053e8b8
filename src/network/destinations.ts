import { isIPv4, isIPv6 } from "node:net";
import type { EndpointSlice, Service } from "../objects.ts";
import { usualDns } from "../pod/dns.ts";

/** Addresses and ports of the cluster that pods reach through the link, each as `address:port`, sorted. */
export interface Destinations {
  readonly tcp: readonly string[];
  /** Those of Services with few of them first: the target may have ports for so many. */
  readonly udp: readonly string[];
  /** Cluster addresses of Services. */
  readonly addresses: readonly string[];
  /** Those of IPv6, which are not carried. */
  readonly addressesIPv6: readonly string[];
}

/** Services of the cluster, followed. */
export interface ServiceSource {
  /** Undefined until they have been read once. */
  list(): readonly Service[] | undefined;
  /** Calls back after every change. @returns what stops that. */
  onChange(hear: () => void): () => void;
}

/** Says whether pods may reach a Service. */
export type Reach = (service: Pick<Service, "metadata" | "spec">) => boolean;

const everywhere: Reach = () => true;

/** Limits pods to the Services of some namespaces, beside the API server and the cluster's DNS.
 *  @param namespaces undefined for all. @param dns addresses of the cluster's DNS, where they are configured. */
export function reachOf(namespaces: readonly string[] | undefined, dns: readonly string[]): Reach {
  if (!namespaces) return everywhere;
  return ({ metadata: { namespace, name }, spec }) =>
    namespaces.includes(namespace) ||
    ["default/kubernetes", usualDns].includes(`${namespace}/${name}`) ||
    (spec?.clusterIPs ?? []).some((address) => dns.includes(address));
}

/** Destinations by the Services of a cluster: the ports of their IPv4 cluster addresses. An ExternalName has none, nor has a headless
 *  Service. Of a Service that is out of reach the address alone is there. Pure.
 *  @see https://kubernetes.io/docs/concepts/services-networking/service/ */
export function destinationsOf(
  services: readonly Pick<Service, "metadata" | "spec">[],
  reaches: Reach = everywhere,
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

/** Destinations by the endpoints of headless Services, for connections alone: `address:port`, sorted. What is on this node is reached
 *  there. Pure.
 *  @param services the headless ones; endpoints of others are left out, whatever their labels say.
 *  @see https://kubernetes.io/docs/concepts/services-networking/service/#headless-services */
export function headlessDestinations(
  slices: readonly EndpointSlice[],
  services: readonly Pick<Service, "metadata" | "spec">[],
  nodeName: string,
  reaches: Reach = everywhere,
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

/** Addresses of destinations, each once. */
export function hostsOf(destinations: readonly string[]): readonly string[] {
  return [...new Set(destinations.flatMap((to) => destinationOf(to)?.host ?? []))];
}

/** Address and port of `address:port` in its one form, with no leading zeros; undefined for anything else. */
export function destinationOf(text: string): { readonly host: string; readonly port: number } | undefined {
  const [, host = "", digits = ""] = /^([0-9.]{7,15}):([1-9][0-9]{0,4})$/.exec(text) ?? [];
  const port = Number(digits);
  return isIPv4(host) && port > 0 && port < 65_536 ? { host, port } : undefined;
}
