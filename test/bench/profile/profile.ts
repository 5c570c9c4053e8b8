// make profile: where the time of a scenario goes, by process, by call of the runtime, by function and in the heap.
import { mkdirSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Cluster, startCluster } from "../../harness/cluster.ts";
import { type Pods, openPods } from "../../harness/pods.ts";
import { must } from "../../harness/processes.ts";
import { readState } from "../../harness/state.ts";
import { waitFor } from "../../harness/wait.ts";
import { graftlet, kubelet } from "../contenders.ts";
import { type Life, clear, end, idlePod, live, numbered } from "../moments.ts";
import { burstSize } from "../scenarios/burst.ts";
import { probed } from "../scenarios/probes.ts";
import { sampleCpu } from "./cpu-timeline.ts";
import { heapSizes } from "./heap-sizes.ts";
import { type PodTimes, concurrencyTable, cpuTable, heapTable, waitTable } from "./report.ts";
import { runtimeCalls } from "./runtime-calls.ts";

const scenarios = ["burst", "delete", "probes"] as const;
const sampleMs = 100;
const probedPods = 10;
const probedMs = 30_000;
const folder = join(import.meta.dirname, "..", "..", "..", "dist", "profile");

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

/** Writes a heap snapshot of the agent, and reads it. */
async function heapOf(pid: number): Promise<ReadonlyMap<string, number>> {
  const snapshots = () => readdirSync(folder).filter((name) => name.endsWith(".heapsnapshot"));
  for (const name of snapshots()) rmSync(join(folder, name));
  process.kill(pid, "SIGUSR2");
  await waitFor("the heap snapshot", () => snapshots().length > 0, { timeoutMs: 60_000 });
  // The file is complete when the process serves its API again.
  await sleep(5_000);
  return heapSizes(join(folder, snapshots()[0] ?? ""));
}

/** Functions by their own CPU time, from the kubelet API. @param done aborts when the scenario is over. */
async function topFunctions(cluster: Cluster, seconds: number): Promise<string> {
  const path = `/api/v1/nodes/${cluster.nodeName}/proxy/debug/pprof/profile?seconds=${seconds}`;
  const file = join(folder, "cpu.pb.gz");
  const get = [cluster.tools.path("kubectl"), "--kubeconfig", cluster.adminKubeconfig, "get", "--raw", path];
  await cluster.mustRunInside(["sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", file, ...get]);
  return must(["go", "tool", "pprof", "-top", "-nodecount=25", file]);
}

async function profile(): Promise<void> {
  if (!scenario) throw new Error(`SCENARIO is ${JSON.stringify(asked)}: it is one of ${scenarios.join(", ")}`);
  const contender = agentName === "kubelet" ? kubelet : graftlet;
  mkdirSync(folder, { recursive: true });
  await using cluster = await startCluster({ name: "profile", nodeName: "profile", provider: "cri", say });
  await using pods = await openPods(cluster);
  const env = { NODE_OPTIONS: `--heapsnapshot-signal=SIGUSR2 --diagnostic-dir=${folder}` };
  await using agent = await contender.start(cluster, { env, config: { maxPods: 200 } });
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
  const containerd = readState(cluster.layout)?.daemons["containerd"]?.pid ?? 0;

  await prepare();
  say(`${contender.who}: ${scenario}`);
  const over = new AbortController();
  const sampling = sampleCpu({ inside: containerd, agent: agent.pid, intervalMs: sampleMs }, over.signal);
  const times = await run(cluster, pods);
  over.abort();
  const slices = await sampling;
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

try {
  await profile();
} catch (error) {
  console.error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
