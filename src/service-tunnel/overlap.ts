import { contains, directSubnets } from "../host/addresses.ts";
import type { HostFs } from "../seams/host.ts";

/** Describes cluster addresses that lie in the pods' own subnet on the target. Pods look for them on their own machine, where no rule sees
 *  the traffic. Pure.
 *  @param routes the target's /proc/net/route.
 *  @param pods addresses of the node's pods.
 *  @param cluster addresses of the cluster. */
export function overlapText(routes: string, pods: readonly string[], cluster: readonly string[]): string | undefined {
  const own = directSubnets(routes).filter((subnet) => pods.some((pod) => contains(subnet, pod)));
  const elsewhere = cluster.filter((address) => !pods.includes(address));
  const [first, ...others] = elsewhere.filter((address) => own.some((subnet) => contains(subnet, address)));
  if (first === undefined) return undefined;
  const more = others.length > 0 ? ` and ${others.length} more` : "";
  return `${first}${more} of the cluster's addresses overlap with the pod network on the target, so pods cannot reach them: give the target's pods another subnet`;
}

/** Compares the pods' network on a target with the cluster's. The routes are read again when a pod's address is in no known subnet.
 *  @throws the target's error when the routes cannot be read. */
export function createOverlapCheck(fs: Pick<HostFs, "readFile">) {
  let routes = "";
  return async (
    pods: readonly string[],
    cluster: readonly string[],
    signal: AbortSignal,
  ): Promise<string | undefined> => {
    const known = directSubnets(routes);
    if (!pods.every((pod) => known.some((subnet) => contains(subnet, pod))))
      routes = (await fs.readFile("/proc/net/route", { signal })).toString("latin1");
    return overlapText(routes, pods, cluster);
  };
}
