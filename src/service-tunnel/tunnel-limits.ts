import { createFairShares } from "../lib/fair-shares.ts";

/** Limits on what graftlet forwards between targets and the cluster, shared by the nodes of a process: each connection needs a
 *  socket, and so an ephemeral port and file descriptors. */
export type TunnelLimits = ReturnType<typeof createTunnelLimits>;

/** Maximum of concurrent connections, from pods to Services and from the cluster to pods, and of concurrent UDP flows. A single
 *  node gets at most half of each. */
const [maxConnections, maxFlows] = [16_384, 16_384];

export function createTunnelLimits() {
  return { connections: createFairShares(maxConnections), flows: createFairShares(maxFlows) };
}
