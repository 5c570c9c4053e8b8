import { type FairShares, createFairShares } from "../lib/fair-shares.ts";

/** Limits on what graftlet forwards between targets and the cluster, shared by the nodes of a process: each connection takes a socket,
 *  and so an ephemeral port and descriptors. */
export interface TunnelLimits {
  /** Concurrent connections, from pods to Services and from the cluster to pods. */
  readonly connections: FairShares;
  /** Concurrent UDP flows. */
  readonly flows: FairShares;
}

/** A single node gets half of either. */
const maxConnections = 16_384;
const maxFlows = 16_384;

export function createTunnelLimits(): TunnelLimits {
  return { connections: createFairShares(maxConnections), flows: createFairShares(maxFlows) };
}
