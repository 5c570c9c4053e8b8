import { setTimeout as sleep } from "node:timers/promises";
import { auditedSoFar, deedsOf } from "../../harness/audit.ts";
import { memoryOf } from "../../harness/holdings.ts";
import { readState } from "../../harness/state.ts";
import type { BenchLab, Scenario } from "../bench-lab.ts";
import { callsBetween, criCalls } from "../cri-calls.ts";
import { idlePod, live, numbered } from "../moments.ts";
import { cpuSeconds } from "../usage.ts";

/** As many as a node has by default. */
export const idleCount = 110;
/** An agent's start is over by then; then it is watched for three minutes. */
const settleMs = 30_000;
const watchedMs = 180_000;

/** A node full of pods with which nothing happens: what its agent takes meanwhile. */
export const idle: Scenario = async ({ cluster, ledger, say }, { who, round, agent }) => {
  await sleep(settleMs);
  const containerd = readState(cluster.layout)?.daemons["containerd"]?.pid ?? Number.NaN;
  const [calls, cpu, runtimeCpu, audited] = [
    await criCalls(cluster),
    cpuSeconds(agent.pid),
    cpuSeconds(containerd),
    auditedSoFar(cluster.layout),
  ];
  const began = performance.now();
  await sleep(watchedMs);
  const minutes = (performance.now() - began) / 60_000;
  const asked = callsBetween(calls, await criCalls(cluster));
  ledger.note("idle cpu", who, round, (cpuSeconds(agent.pid) - cpu) / minutes);
  ledger.note("idle runtime cpu", who, round, (cpuSeconds(containerd) - runtimeCpu) / minutes);
  ledger.note("memory", who, round, memoryOf(agent.pid).now);
  ledger.note("idle calls", who, round, asked.reduce((sum, { count }) => sum + count, 0) / minutes);
  const writes = deedsOf(cluster.layout, audited).filter(
    ({ verb, stage }) => stage === "ResponseComplete" && ["create", "update", "patch", "delete"].includes(verb),
  );
  ledger.note("idle writes", who, round, writes.length / minutes);
  say(`  asked of containerd: ${asked.map(({ method, count }) => `${method} ${count}`).join(", ")}`);
};

/** Fills the node with the pods that are not there yet. */
export async function fill({ cluster, pods, say }: BenchLab): Promise<void> {
  const missing = numbered("idle", idleCount).filter((name) => pods.history(name).length === 0);
  if (missing.length === 0) return;
  say(`  ${missing.length} pods are started`);
  for (let from = 0; from < missing.length; from += 10)
    await Promise.all(missing.slice(from, from + 10).map((name) => live(pods, name, idlePod(cluster.nodeName))));
}
