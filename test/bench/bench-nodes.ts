import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { heapOf, heapReporting } from "../harness/heap.ts";
import { allReady, startSeveral } from "../harness/several-nodes.ts";
import type { BenchLab } from "./bench-lab.ts";
import { cpuSeconds } from "./usage.ts";

export const furtherNode = "a further node";
const kubeletConfiguration = { failSwapOn: false, failCgroupV1: false };
/** Clear of the ports that the cluster's own programs have on the machine. */
const firstPort = 11_000;
const settleMs = 60_000;
const watchedMs = 120_000;

/** What one process takes for one node, and for so many more, whose machines are in memory. */
export async function benchNodes({ ledger, say }: Pick<BenchLab, "ledger" | "say">, further: number): Promise<void> {
  await using cluster = await startCluster({ name: "bench", provider: "cri", say });
  const one = await taken(cluster, 1, say);
  const all = await taken(cluster, 1 + further, say);
  ledger.note("memory", "one node", 1, one.memory);
  ledger.note("memory", "all nodes", 1, all.memory);
  ledger.note("memory", furtherNode, 1, (all.memory - one.memory) / further);
  ledger.note("cpu", "one node", 1, one.cpu);
  ledger.note("cpu", "all nodes", 1, all.cpu);
  ledger.note("cpu", furtherNode, 1, (all.cpu - one.cpu) / further);
}

/** Resident memory in MiB and idle CPU in percent of a core. */
async function taken(cluster: Cluster, count: number, say: (line: string) => void) {
  const names = Array.from({ length: count }, (_, index) => `node-${index + 1}`);
  const nodes = names.map((name, index) => ({ name, provider: "fake", kubeletConfiguration, port: firstPort + index }));
  const report = join(cluster.layout.dir, "heap.json");
  await using agent = await startSeveral(cluster, `of-${count}`, { nodes, env: heapReporting(report) });
  await allReady(cluster, names, agent);
  say(`${count} nodes are Ready and left alone`);
  await sleep(settleMs);
  const cpu = cpuSeconds(agent.pid);
  await sleep(watchedMs);
  const spent = ((cpuSeconds(agent.pid) - cpu) / (watchedMs / 1000)) * 100;
  const { rss } = await heapOf(agent, report);
  await agent.stop();
  return { memory: rss, cpu: spent };
}
