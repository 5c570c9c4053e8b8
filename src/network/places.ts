import { type FairShares, createFairShares } from "../lib/fair-shares.ts";

/** Limits on what graftlet forwards between targets and the cluster, shared by the nodes of a process: each connection takes a socket,
 *  and so an ephemeral port and descriptors. */
export interface TunnelPlaces {
  /** Concurrent connections, from pods to Services and from the cluster to pods. */
  readonly connections: FairShares;
  /** Concurrent UDP flows. */
  readonly flows: FairShares;
}

/** A single node gets half of either. */
const mostConnections = 16_384;
const mostFlows = 16_384;

export function createTunnelPlaces(): TunnelPlaces {
  return { connections: createFairShares(mostConnections), flows: createFairShares(mostFlows) };
}
