// make profile: where the time of a scenario goes, by process, by call of the runtime, by function and in the heap.
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Cluster, startCluster } from "../../harness/cluster.ts";
import { type Pods, openPods } from "../../harness/pods.ts";
import type { BenchLab } from "../bench-lab.ts";
import { type Contender, graftlet, kubelet } from "../contenders.ts";
import { createLedger } from "../ledger.ts";
import { type Life, clear, end, idlePod, live, numbered } from "../moments.ts";
import { burstSize } from "../scenarios/burst.ts";
import { fill } from "../scenarios/idle.ts";
import { probed } from "../scenarios/probes.ts";
import { untilBack } from "../scenarios/restart.ts";
import type { CpuSlice } from "./cpu-timeline.ts";
import { heapEnv, heapOf, lifeEnv, sampledDuring, topFunctions, topFunctionsOfLife } from "./insights.ts";
import { type PodTimes, concurrencyTable, cpuTable, heapTable, waitTable } from "./report.ts";
import { runtimeCalls } from "./runtime-calls.ts";

const scenarios = ["burst", "delete", "probes", "restart"] as const;
const probedPods = 10;
const probedMs = 30_000;
/** An agent's start is over by then. */
const settleMs = 30_000;
const config = { maxPods: 200 };

const { SCENARIO: asked = "", AGENT: agentName = "" } = process.env;
const scenario = scenarios.find((name) => name === (asked || "burst"));
const say = (line: string): void => console.error(line);

/** Creates or deletes the scenario's pods. */
async function run(cluster: Cluster, pods: Pods): Promise<readonly PodTimes[]> {
  const names = numbered("pod", burstSize);
  if (scenario === "probes") return sleep(probedMs, []);
  const each = async (name: string): Promise<Life> =>
    scenario === "delete" ? end(pods, name) : live(pods, name, idlePod(cluster.nodeName));
  const epoch = ({ asked: from, shown }: Life) => ({
    asked: performance.timeOrigin + from,
    shown: performance.timeOrigin + shown,
  });
  return Promise.all(names.map(async (name) => ({ name, ...epoch(await each(name)) })));
}

/** Pods that start, end or are probed. */
async function profilePods({ cluster, pods }: BenchLab, contender: Contender): Promise<void> {
  await using agent = await contender.start(cluster, { env: heapEnv(), config });
  const names = numbered("pod", burstSize);
  const warm = numbered("warm", 3);
  for (const name of warm) await live(pods, name, idlePod(cluster.nodeName));
  await clear(pods, warm);
  const prepare = async () => {
    if (scenario === "delete") await Promise.all(names.map((name) => live(pods, name, idlePod(cluster.nodeName))));
    if (scenario === "probes")
      await Promise.all(
        numbered("probed", probedPods).map((name, index) => live(pods, name, probed(cluster.nodeName, index === 0))),
      );
    await sleep(3_000);
  };
  const agentPid = () => agent.pid;

  await prepare();
  say(`${contender.who}: ${scenario}`);
  const { result: times, slices } = await sampledDuring(cluster, agentPid, () => run(cluster, pods));
  const calls = runtimeCalls(readFileSync(join(cluster.layout.logs, "containerd.log"), "utf8"));
  const began = Math.min(...times.map((pod) => pod.asked));
  const own = calls.filter((call) => call.began >= began);
  console.log(`\n${contender.who}, ${scenario}\n\n${cpuTable(slices, availableParallelism())}`);
  if (times.length > 0) console.log(`\n${waitTable(times, own)}\n\n${concurrencyTable(own)}`);
  if (contender.who !== graftlet.who) return;

  // Again: a profile and snapshots take time of their own.
  const seconds = Math.ceil((slices.at(-1)?.at ?? 0) / 1000) + 1;
  if (scenario === "burst") await clear(pods, names);
  await prepare();
  const before = await heapOf(agent.pid);
  const top = topFunctions(cluster, seconds);
  await run(cluster, pods);
  console.log(`\n${await top}`);
  console.log(heapTable(before, await heapOf(agent.pid)));
}

/** An agent that ends and starts again under a node full of pods. */
async function profileRestart(lab: BenchLab, contender: Contender): Promise<void> {
  const { cluster } = lab;
  await using stack = new AsyncDisposableStack();
  let agent = await contender.start(cluster, { env: heapEnv(), config });
  stack.defer(() => agent[Symbol.asyncDispose]());
  const startWith = (env: Readonly<Record<string, string>>) => async () => {
    agent = await contender.start(cluster, { env, config, untilReady: false });
    return agent;
  };
  await fill(lab);
  await sleep(settleMs);
  const isGraftlet = contender.who === graftlet.who;
  const before = isGraftlet ? await heapOf(agent.pid) : undefined;
  say(`${contender.who}: restart`);
  const again = startWith(heapEnv());
  const { result, slices } = await sampledDuring(
    cluster,
    () => agent.pid,
    () => untilBack(lab, agent, again),
  );
  console.log(`\n${contender.who}, restart in ${Math.round(result.tookMs)} ms\n`);
  console.log(cpuTable(lastOf(slices, result.tookMs), availableParallelism()));
  if (!before) return;

  await sleep(settleMs);
  const after = await heapOf(agent.pid);
  const { tookMs } = await untilBack(lab, agent, startWith(lifeEnv()));
  await agent.stop();
  console.log(`\n${await topFunctionsOfLife(tookMs)}\n${heapTable(before, after)}`);
}

/** The slices of the last so many milliseconds. */
function lastOf(slices: readonly CpuSlice[], ms: number): readonly CpuSlice[] {
  const from = (slices.at(-1)?.at ?? 0) - ms;
  return slices.filter(({ at }) => at > from).map(({ at, used }) => ({ at: at - from, used }));
}

async function profile(): Promise<void> {
  if (!scenario) throw new Error(`SCENARIO is ${JSON.stringify(asked)}: it is one of ${scenarios.join(", ")}`);
  const contender = agentName === "kubelet" ? kubelet : graftlet;
  await using cluster = await startCluster({ name: "profile", nodeName: "profile", provider: "cri", say });
  await using pods = await openPods(cluster);
  const lab = { cluster, pods, say, ledger: createLedger() };
  await (scenario === "restart" ? profileRestart(lab, contender) : profilePods(lab, contender));
}

try {
  await profile();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
