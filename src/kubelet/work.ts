import type { NodeWork } from "../report/node.ts";
import { servedPods } from "../server/routes/pods.ts";
import type { NodeStats } from "../stats/node-stats.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import type { NodeServer } from "./server.ts";

interface Parts {
  readonly cluster: Pick<Cluster, "nodes">;
  readonly observed: Pick<Observed, "agent">;
  readonly stats: Pick<NodeStats, "summary">;
  readonly server: Pick<NodeServer, "gate">;
}

/** The node's state for status commands and the page, as served by its kubelet API. A standalone node shows the Node that it would register. */
export function nodeWork({ alone, hand }: NodeContext, { cluster, observed, stats, server }: Parts): NodeWork {
  const { asked, status } = hand("report");
  return {
    alone,
    node: () => cluster.nodes.node() ?? (alone ? observed.agent.ownNode() : undefined),
    pods: () => servedPods(asked, status),
    summary: (signal) => stats.summary(false, signal),
    ...(server.gate && { gate: server.gate }),
  };
}
