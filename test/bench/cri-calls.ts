import type { Cluster } from "../harness/cluster.ts";
import { containerdMetrics } from "../harness/containerd-config.ts";

/** CRI calls that containerd has been asked so far, by method. It counts them itself: nothing stands between it and the agent. */
export async function criCalls(cluster: Cluster): Promise<ReadonlyMap<string, number>> {
  const { stdout } = await cluster.runInside(["curl", "--silent", "--fail", `http://${containerdMetrics}/v1/metrics`]);
  const counts = criCallsIn(stdout);
  if (counts.size === 0) throw new Error(`containerd tells of no CRI calls at ${containerdMetrics}`);
  return counts;
}

/** @param text metrics as Prometheus reads them. */
export function criCallsIn(text: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const [, labels = "", value] of text.matchAll(/^grpc_server_started_total\{(.*)\} (\S+)$/gm)) {
    const label = (name: string) => new RegExp(`${name}="([^"]*)"`).exec(labels)?.[1] ?? "";
    if (label("grpc_service").startsWith("runtime.v1.")) counts.set(label("grpc_method"), Number(value));
  }
  return counts;
}

/** What was asked between two countings, by method, the most frequent first. */
export function callsBetween(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>) {
  const calls = [...after].map(([method, count]) => ({ method, count: count - (before.get(method) ?? 0) }));
  return calls.filter(({ count }) => count > 0).sort((a, b) => b.count - a.count);
}
