import { isIPv4 } from "node:net";
import type { EndpointSlice, Service } from "../objects.ts";

/** Addresses and ports of the cluster that pods reach through the link, each as `address:port`, sorted. */
export interface Destinations {
  readonly tcp: readonly string[];
  readonly udp: readonly string[];
  /** Cluster addresses of Services. */
  readonly addresses: readonly string[];
}

/** Destinations by the Services of a cluster: the ports of their IPv4 cluster addresses. An ExternalName has none, nor has a headless
 *  Service. Pure.
 *  @see https://kubernetes.io/docs/concepts/services-networking/service/ */
export function destinationsOf(services: readonly Pick<Service, "spec">[]): Destinations {
  const tcp = new Set<string>();
  const udp = new Set<string>();
  const addresses = new Set<string>();
  for (const { spec } of services) {
    if (spec?.type === "ExternalName") continue;
    const own = (spec?.clusterIPs ?? [spec?.clusterIP ?? ""]).filter((address) => isIPv4(address));
    for (const address of own) {
      addresses.add(address);
      for (const { port, protocol = "TCP" } of spec?.ports ?? []) {
        if (protocol === "TCP") tcp.add(`${address}:${port}`);
        if (protocol === "UDP") udp.add(`${address}:${port}`);
      }
    }
  }
  return { tcp: [...tcp].sort(), udp: [...udp].sort(), addresses: [...addresses].sort() };
}

/** Destinations by the endpoints of headless Services, for connections alone: `address:port`, sorted. What is on this node is reached
 *  there. Pure.
 *  @see https://kubernetes.io/docs/concepts/services-networking/service/#headless-services */
export function headlessDestinations(slices: readonly EndpointSlice[], nodeName: string): readonly string[] {
  const found = new Set<string>();
  for (const { addressType, endpoints, ports } of slices) {
    if (addressType !== "IPv4") continue;
    const elsewhere = (endpoints ?? []).filter((endpoint) => endpoint.nodeName !== nodeName);
    for (const address of elsewhere.flatMap((endpoint) => endpoint.addresses).filter((one) => isIPv4(one)))
      for (const { port, protocol = "TCP" } of ports ?? [])
        if (protocol === "TCP" && port !== undefined) found.add(`${address}:${port}`);
  }
  return [...found].sort();
}

/** Address and port of `address:port`; undefined for anything else. */
export function destinationOf(text: string): { readonly host: string; readonly port: number } | undefined {
  const end = text.lastIndexOf(":");
  const [host, port] = [text.slice(0, end), Number(text.slice(end + 1))];
  return end > 0 && isIPv4(host) && Number.isInteger(port) && port > 0 && port < 65_536 ? { host, port } : undefined;
}
