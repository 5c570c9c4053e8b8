import { BlockList } from "node:net";
import { parseDestination } from "./destinations.ts";

export type Protocol = "tcp" | "udp";

/** Allowed traffic: addresses of this node's pods, and destinations as `address:port`. */
export interface AllowedTraffic extends Readonly<Record<Protocol, readonly string[]>> {
  readonly pods: readonly string[];
}

/** Source and destination of admitted traffic. */
export interface AdmittedTraffic {
  readonly pod: string;
  readonly to: { readonly host: string; readonly port: number };
}

/** Decides which connections and datagrams leave the tunnel from graftlet's own network. Sources and destinations are claims of the
 *  target and are not trusted. */
export type TunnelGate = ReturnType<typeof createTunnelGate>;

export function createTunnelGate() {
  const refused = unroutable();
  let pods: ReadonlySet<string> = new Set();
  let destinations: Readonly<Record<Protocol, ReadonlySet<string>>> = { tcp: new Set(), udp: new Set() };
  const isPod = (address: string) => pods.has(address);
  const isDestination = (protocol: Protocol, to: string) => destinations[protocol].has(to);
  return {
    isPod,
    isDestination,
    /** Replaces what is allowed; nothing is allowed before the first call. */
    allow(now: AllowedTraffic): void {
      pods = new Set(now.pods);
      destinations = { tcp: new Set(now.tcp), udp: new Set(now.udp) };
    },
    /** @param from `address:port` of a pod. @param to `address:port` of its destination. @returns undefined unless both are allowed. */
    admit(protocol: Protocol, from: string, to: string): AdmittedTraffic | undefined {
      const source = parseDestination(from);
      if (!source || !isPod(source.host) || !isDestination(protocol, to)) return undefined;
      const destination = parseDestination(to);
      return destination && !refused.check(destination.host) ? { pod: source.host, to: destination } : undefined;
    },
  };
}

/** Returns the addresses that no Service or pod has: loopback (which would be graftlet's own), link-local (cloud metadata),
 *  multicast and reserved addresses. */
function unroutable(): BlockList {
  const list = new BlockList();
  list.addSubnet("0.0.0.0", 8);
  list.addSubnet("127.0.0.0", 8);
  list.addSubnet("169.254.0.0", 16);
  list.addSubnet("224.0.0.0", 3);
  return list;
}
