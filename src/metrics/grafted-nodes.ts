import type { Clock } from "../lib/clock.ts";
import { processStart } from "./process.ts";
import { type Metrics, createMetrics } from "./registry.ts";
import { reviewMetrics, tokenCacheMetrics } from "./reviews.ts";

/** A condition as metrics show it. */
interface ObservedCondition {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  readonly reason: string;
}

/** A GraftedNode as this process sees it. */
export interface ObservedGraftedNode {
  readonly name: string;
  /** Undefined without a pool. */
  readonly pool: string | undefined;
  readonly conditions: readonly ObservedCondition[];
}

/** A GraftedNodePool as this process sees it. */
export interface ObservedPool {
  readonly name: string;
  /** Number of members that should be active. */
  readonly wanted: number;
  readonly active: number;
  readonly ready: number;
  readonly updated: number;
  readonly isPaused: boolean;
}

/** The objects of a process, read at each scrape. */
export interface ObservedObjects {
  nodes(): readonly ObservedGraftedNode[];
  pools(): readonly ObservedPool[];
  /** How replicas share the objects, as this one sees it; undefined for a process that serves no objects. */
  sharing(): ObservedSharing | undefined;
}

/** How replicas share GraftedNodes. */
export interface ObservedSharing {
  /** Number of replicas that are alive. */
  readonly replicas: number;
  /** Number of objects that no living replica owns. */
  readonly unowned: number;
}

/** Creates the metrics of the GraftedNodes and GraftedNodePools of a process, which no single node's kubelet API can show: a machine that
 *  never became a node has none. Names follow kube-state-metrics. The number of series is bounded by the number of objects. */
export function createGraftedNodeMetrics(objects: ObservedObjects, clock: Clock) {
  const metrics = createMetrics();
  nodeMetrics(metrics, objects);
  sharingMetrics(metrics, objects);
  poolMetrics(metrics, objects);
  processStart(metrics, clock);
  return {
    /** Prometheus' exposition format. */
    text: metrics.text,
    reviews: reviewMetrics(metrics),
    tokenCache: tokenCacheMetrics(metrics),
  };
}

function nodeMetrics(metrics: Metrics, { nodes }: ObservedObjects): void {
  metrics.gauge("graftlet_grafted_nodes", "Number of GraftedNodes by condition, with its status and reason.", {
    labels: ["condition", "status", "reason"],
    values: () => countConditions(nodes()),
  });
  metrics.gauge("graftlet_grafted_node_ready", "Whether a GraftedNode is Ready: 1 if its condition is True.", {
    labels: ["node", "pool"],
    values: () => nodes().map((node) => [labelsOf(node), readyOf(node)?.status === "True" ? 1 : 0] as const),
  });
  metrics.gauge(
    "graftlet_grafted_node_not_ready_reason",
    "Reason why a GraftedNode is not Ready, as a label; always 1.",
    {
      labels: ["node", "pool", "reason"],
      values: () =>
        nodes().flatMap((node) => {
          const ready = readyOf(node);
          return ready && ready.status !== "True"
            ? [[{ ...labelsOf(node), reason: shown(ready.reason) }, 1] as const]
            : [];
        }),
    },
  );
}

function poolMetrics(metrics: Metrics, { pools }: ObservedObjects): void {
  const gauge = (name: string, help: string, value: (pool: ObservedPool) => number) =>
    metrics.gauge(`graftlet_grafted_node_pool_${name}`, help, {
      labels: ["pool"],
      values: () => pools().map((pool) => [{ pool: pool.name }, value(pool)] as const),
    });
  gauge("spec_replicas", "Number of members of a GraftedNodePool that should be active.", ({ wanted }) => wanted);
  gauge("status_replicas", "Number of active members of a GraftedNodePool.", ({ active }) => active);
  gauge("status_replicas_ready", "Number of active members of a GraftedNodePool that are Ready.", ({ ready }) => ready);
  gauge(
    "status_replicas_updated",
    "Number of active members of a GraftedNodePool that run with its template.",
    ({ updated }) => updated,
  );
  gauge(
    "rollout_paused",
    "Whether the roll-out of a GraftedNodePool's template is paused after failures: 1 if it is.",
    (pool) => (pool.isPaused ? 1 : 0),
  );
}

function sharingMetrics(metrics: Metrics, { sharing }: ObservedObjects): void {
  const gauge = (name: string, help: string, value: (now: ObservedSharing) => number) =>
    metrics.gauge(name, help, {
      labels: [],
      values() {
        const now = sharing();
        return now ? [[{}, value(now)] as const] : [];
      },
    });
  gauge("graftlet_replicas", "Number of replicas that are alive, as this one sees it.", ({ replicas }) => replicas);
  gauge(
    "graftlet_unowned_grafted_nodes",
    "Number of GraftedNodes that no living replica owns, as this one sees it.",
    ({ unowned }) => unowned,
  );
}

function countConditions(nodes: readonly ObservedGraftedNode[]) {
  const conditions = nodes.flatMap((node) => node.conditions);
  const groups = Map.groupBy(conditions, ({ type, status, reason }) => `${type} ${status} ${shown(reason)}`);
  return [...groups].map(([key, of]) => {
    const [condition = "", status = "", reason = ""] = key.split(" ");
    return [{ condition, status, reason }, of.length] as const;
  });
}

function labelsOf({ name, pool = "" }: ObservedGraftedNode) {
  return { node: name, pool };
}

function readyOf({ conditions }: ObservedGraftedNode): ObservedCondition | undefined {
  return conditions.find(({ type }) => type === "Ready");
}

/** The reason of a Node's Ready condition is not only this program's: whoever may write the Node's status writes any text. */
function shown(reason: string): string {
  return /^[A-Za-z]\w{0,63}$/.test(reason) ? reason : "Other";
}
