import { boundedLines } from "../lib/bounded-text.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { Host } from "../seams/host.ts";
import { commandWithoutDashes } from "../seams/command.ts";

/** Addresses of the target, best first: those of the default route's interface, IPv4 before IPv6, then those of other
 *  interfaces; without loopback and link-local addresses. If the target has `ip`, an interface's primary address comes first,
 *  before virtual addresses that the machine currently holds. Empty if the target reports none. (k8s.io/apimachinery,
 *  chooseHostInterfaceFromRoute) */
export async function targetAddresses(host: Host, signal: AbortSignal): Promise<readonly string[]> {
  const route = (await host.fs.readFile("/proc/net/route", { signal })).toString("utf8");
  const trie = (await host.fs.readFile("/proc/net/fib_trie", { signal })).toString("utf8");
  const six = await host.fs.readFile("/proc/net/if_inet6", { signal }).then(
    (text) => text.toString("utf8"),
    () => "",
  );
  const locals = localIPv4(trie);
  const main = defaultInterface(route);
  const ofMain = main ? subnetsOf(route, main).slice(0, maxSubnets) : [];
  const inOrder = main ? await orderedIPv4(host, main, signal) : [];
  const places = new Map(inOrder.map((address, at) => [address, at]));
  const rank = (address: string) =>
    places.get(address) ?? inOrder.length + (ofMain.some((subnet) => contains(subnet, address)) ? 0 : 1);
  const ranks = new Map(locals.map((address) => [address, rank(address)]));
  const four = [...locals].sort((a, b) => (ranks.get(a) ?? 0) - (ranks.get(b) ?? 0));
  return [...four, ...globalIPv6(six, main)];
}

/** Maximum number of subnets per interface: each is compared with each of the machine's addresses. */
const maxSubnets = 64;

/** Addresses of an interface in the kernel's order, which no file in /proc shows; empty without `ip`. */
async function orderedIPv4(host: Host, name: string, signal: AbortSignal): Promise<readonly string[]> {
  const ran = await ignoreNotFound(
    host.run(commandWithoutDashes(["ip", "-o", "-4", "address", "show", "dev"], [], [name]), { signal }),
  );
  return [...(ran?.stdout ?? "").matchAll(/\binet (\d+\.\d+\.\d+\.\d+)/g)].map(([, address = ""]) => address);
}

/** Local addresses in the kernel's FIB trie. */
export function localIPv4(fibTrie: string): readonly string[] {
  const found = new Set<string>();
  let last = "";
  for (const line of boundedLines(fibTrie)) {
    const address = /\|--\s+(\d+\.\d+\.\d+\.\d+)/.exec(line)?.[1];
    if (address) last = address;
    else if (/\/32 host LOCAL/.test(line) && !last.startsWith("127.") && !last.startsWith("169.254.")) found.add(last);
  }
  return [...found];
}

export interface Subnet {
  readonly network: number;
  readonly mask: number;
}

/** A line of /proc/net/route, with addresses as numbers. */
export interface NetworkRoute {
  readonly name: string;
  readonly destination: number;
  readonly mask: number;
  readonly gateway: number;
}

/** @param table in the format of /proc/net/route. */
export function networkRoutes(table: string): readonly NetworkRoute[] {
  return boundedLines(table)
    .slice(1)
    .flatMap((line) => {
      const [name, destination, gateway, , , , , mask] = line.trim().split(/\s+/);
      return name && [destination, gateway, mask].every(isWord) && destination && gateway && mask
        ? [
            {
              name,
              destination: littleEndian(destination),
              mask: littleEndian(mask),
              gateway: littleEndian(gateway),
            },
          ]
        : [];
    });
}

function isWord(hex: string | undefined): boolean {
  return hex !== undefined && /^[0-9a-f]{8}$/i.test(hex);
}

function littleEndian(hex: string): number {
  return Buffer.from(hex, "hex").readUInt32LE();
}

/** The interface of the default route in /proc/net/route. */
export function defaultInterface(table: string): string | undefined {
  return networkRoutes(table).find(({ destination, mask }) => destination === 0 && mask === 0)?.name;
}

function subnetsOf(table: string, name: string): readonly Subnet[] {
  return networkRoutes(table)
    .filter((route) => route.name === name && route.mask !== 0)
    .map(({ destination, mask }) => ({ network: destination, mask }));
}

/** Directly connected subnets in /proc/net/route (without a gateway). */
export function directSubnets(table: string): readonly Subnet[] {
  return networkRoutes(table)
    .filter(({ gateway, mask }) => gateway === 0 && mask !== 0)
    .map(({ destination, mask }) => ({ network: destination, mask }));
}

/** True for an IPv4 address of the subnet. */
export function contains({ network, mask }: Subnet, address: string): boolean {
  const value = address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
  return (value & mask) === (network & mask);
}

/** Global addresses in /proc/net/if_inet6, those of the given interface first. */
function globalIPv6(table: string, first: string | undefined): readonly string[] {
  const found = boundedLines(table).flatMap((line) => {
    const [hex, , , scope, , name] = line.trim().split(/\s+/);
    const address = hex && ipv6Address(hex);
    return address && scope === "00" && name ? [{ name, address }] : [];
  });
  return found.sort((a, b) => Number(b.name === first) - Number(a.name === first)).map(({ address }) => address);
}

/** @param hex the 32 hex digits of an IPv6 address. @returns undefined for any other text. */
export function ipv6Address(hex: string): string | undefined {
  if (!/^[0-9a-f]{32}$/i.test(hex)) return undefined;
  return new URL(`http://[${(hex.match(/.{4}/g) ?? []).join(":")}]`).hostname.slice(1, -1);
}
