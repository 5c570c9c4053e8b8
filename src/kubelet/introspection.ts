import type { NodeIntrospection } from "../report/reported-node.ts";
import { servedPods } from "../server/routes/pods.ts";
import type { NodeStats } from "../stats/node-stats.ts";
import type { Cluster, NodeContext, ObservedTarget } from "./deps.ts";
import type { NodeServer } from "./server.ts";

interface IntrospectionParts {
  readonly cluster: Pick<Cluster, "nodes">;
  readonly observed: Pick<ObservedTarget, "agent">;
  readonly stats: Pick<NodeStats, "summary">;
  readonly server: Pick<NodeServer, "gate">;
}

/** The node's state for status commands and the page, as served by its kubelet API. A standalone node shows the Node that it would register. */
export function createNodeIntrospection(
  { standalone, hand }: NodeContext,
  { cluster, observed, stats, server }: IntrospectionParts,
): NodeIntrospection {
  const { desired, status } = hand("report");
  return {
    standalone: standalone,
    node: () => cluster.nodes.node() ?? (standalone ? observed.agent.ownNode() : undefined),
    pods: () => servedPods(desired, status),
    summary: (signal) => stats.summary(false, signal),
    ...(server.gate && { gate: server.gate }),
  };
}
