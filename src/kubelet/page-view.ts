import type { PageView } from "../page/view.ts";
import { servedPods } from "../server/routes/pods.ts";
import type { NodeStats } from "../stats/node-stats.ts";
import type { Cluster, NodeContext, Observed } from "./deps.ts";
import type { NodeServer } from "./server.ts";

interface Shown {
  readonly cluster: Pick<Cluster, "nodes">;
  readonly observed: Pick<Observed, "agent">;
  readonly stats: Pick<NodeStats, "summary">;
  readonly server: Pick<NodeServer, "gate">;
}

/** The node, for the page: what its kubelet API serves. A standalone node shows what it would register. */
export function pageView({ alone, hand }: NodeContext, { cluster, observed, stats, server }: Shown): PageView {
  const { asked, status } = hand("page");
  return {
    node: () => cluster.nodes.node() ?? (alone ? observed.agent.ownNode() : undefined),
    pods: () => servedPods(asked, status),
    summary: (signal) => stats.summary(false, signal),
    ...(server.gate && { gate: server.gate }),
  };
}
