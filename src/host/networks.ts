import { BlockList, isIP } from "node:net";
import { boundedLines } from "../lib/bounded-text.ts";
import { ignoreNotFound } from "../lib/errors.ts";
import type { HostFs } from "../seams/host.ts";
import { ipv6Address, networkRoutes } from "./addresses.ts";

/** A range of addresses that a machine has a route to. */
export interface Network {
  /** Such as `10.0.0.0/24` or `fd00::/64`. */
  readonly cidr: string;
  readonly device: string;
  /** True for a directly connected network (without a gateway). */
  readonly isDirect: boolean;
}

/** @returns the networks to which a target has routes other than the default one, without link-local ones and its own loopback.
 *  @see https://man7.org/linux/man-pages/man5/proc_pid_net.5.html */
export async function readNetworks(fs: Pick<HostFs, "readFile">, signal: AbortSignal): Promise<readonly Network[]> {
  const read = async (name: string) =>
    (await ignoreNotFound(fs.readFile(`/proc/net/${name}`, { signal })))?.toString("latin1") ?? "";
  return networksIn(await read("route"), await read("ipv6_route"));
}

/** @param four a table in the format of /proc/net/route. @param six a table in the format of /proc/net/ipv6_route. Pure. */
export function networksIn(four: string, six: string): readonly Network[] {
  const ofFour = networkRoutes(four).flatMap(({ name: device, destination, mask, gateway }) =>
    mask === 0 ? [] : [{ cidr: `${dotted(destination)}/${bitsOf(mask)}`, device, isDirect: gateway === 0 }],
  );
  const ofSix = boundedLines(six).flatMap((line) => {
    const [to = "", bits = "", , , gateway = "", , , , , device = "lo"] = line.trim().split(/\s+/);
    if (device === "lo" || Number.parseInt(bits, 16) === 0 || /^f[ef]/.test(to)) return [];
    const address = ipv6Address(to);
    if (address === undefined) return [];
    return [{ cidr: `${address}/${Number.parseInt(bits, 16)}`, device, isDirect: /^0+$/.test(gateway) }];
  });
  return [...ofFour, ...ofSix];
}

const dotted = (address: number) => [24, 16, 8, 0].map((shift) => (address >>> shift) & 255).join(".");
const bitsOf = (mask: number) => mask.toString(2).replaceAll("0", "").length;

/** True if two CIDR ranges overlap. Pure. @param one such as `10.0.0.0/8`; any other text overlaps nothing. */
export function overlaps(one: string, other: string): boolean {
  return holds(one, other) || holds(other, one);
}

/** True if a range contains another's first address. */
function holds(range: string, other: string): boolean {
  const [[network = "", bits], [first = ""]] = [range.split("/"), other.split("/")];
  const family = isIP(network);
  if (family === 0 || isIP(first) !== family) return false;
  const [list, type] = [new BlockList(), family === 6 ? "ipv6" : "ipv4"] as const;
  list.addSubnet(network, Number(bits), type);
  return list.check(first, type);
}
