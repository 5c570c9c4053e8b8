import { createFairShares } from "../lib/fair-shares.ts";

/** Limits on what graftlet forwards between targets and the cluster, shared by the nodes of a process: each connection takes a socket,
 *  and so an ephemeral port and descriptors. */
export type TunnelLimits = ReturnType<typeof createTunnelLimits>;

/** Maximum of concurrent connections, from pods to Services and from the cluster to pods, and of concurrent UDP flows. A single node gets
 *  half of either. */
const [maxConnections, maxFlows] = [16_384, 16_384];

export function createTunnelLimits() {
  return { connections: createFairShares(maxConnections), flows: createFairShares(maxFlows) };
}
