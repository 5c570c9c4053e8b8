import { type Shares, createShares } from "../lib/shares.ts";

/** Bounds on what graftlet carries between targets and the cluster, shared by the nodes of a process: each takes a socket, and so one of its
 *  ephemeral ports and descriptors. */
export interface TunnelPlaces {
  /** Connections at once, of pods to Services and of the cluster to pods. */
  readonly connections: Shares;
  /** Flows of datagrams at once. */
  readonly flows: Shares;
}

/** A node by itself gets half of either. */
const mostConnections = 16_384;
const mostFlows = 16_384;

export function createTunnelPlaces(): TunnelPlaces {
  return { connections: createShares(mostConnections), flows: createShares(mostFlows) };
}
