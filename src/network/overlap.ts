import { contains, nearSubnets } from "../host/addresses.ts";
import type { HostFs } from "../seams/host.ts";

/** The sentence of addresses of the cluster that a pod takes for a neighbour's, and looks for on its own machine: no rule sees what it
 *  sends there. Pure.
 *  @param routes the target's /proc/net/route. @param pods addresses of the node's pods. @param cluster those of the cluster. */
export function overlapOf(routes: string, pods: readonly string[], cluster: readonly string[]): string | undefined {
  const own = nearSubnets(routes).filter((subnet) => pods.some((pod) => contains(subnet, pod)));
  const elsewhere = cluster.filter((address) => !pods.includes(address));
  const [first, ...others] = elsewhere.filter((address) => own.some((subnet) => contains(subnet, address)));
  if (first === undefined) return undefined;
  const more = others.length > 0 ? ` and ${others.length} more` : "";
  return `${first}${more} of the cluster's addresses belong to the pods' own network on the target, where pods look for them in vain: give the target's pods another subnet`;
}

/** Compares the pods' network on a target with the cluster's. The target is asked when a pod has an address of no network that is known.
 *  @throws what the target says when it cannot be read. */
export function createOverlapCheck(fs: Pick<HostFs, "readFile">) {
  let routes = "";
  return async (
    pods: readonly string[],
    cluster: readonly string[],
    signal: AbortSignal,
  ): Promise<string | undefined> => {
    const known = nearSubnets(routes);
    if (!pods.every((pod) => known.some((subnet) => contains(subnet, pod))))
      routes = (await fs.readFile("/proc/net/route", { signal })).toString("latin1");
    return overlapOf(routes, pods, cluster);
  };
}
