import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { startCluster } from "../harness/cluster.ts";
import { startDockerProxy } from "../harness/docker-proxy.ts";
import { openPods } from "../harness/pods.ts";
import type { BenchLab } from "./bench-lab.ts";
import { graftlet } from "./contenders.ts";
import { openDockerLoop } from "./docker-loop.ts";
import { clear, idlePod, live, numbered, standing } from "./moments.ts";
import { execRate } from "./scenarios/streams.ts";
import { execTarget } from "./scenarios/exec.ts";
import { kill } from "./scenarios/kill.ts";
import { startsOf } from "./scenarios/start.ts";
import { cpuSeconds } from "./usage.ts";

export const dockerLoop = "Docker API loop";
export const containerdPath = "containerd path";
const { who } = graftlet;
const idleCount = 50;
const settleMs = 60_000;
const watchedMs = 180_000;
const streamedMebibytes = 1024;

/** Graftlet on a Docker Engine, and in turn with it a plain loop over the engine's API. */
export async function benchDocker(
  given: Pick<BenchLab, "ledger" | "say">,
  scenarios: readonly string[],
): Promise<void> {
  if (scenarios.includes("streams")) await onContainerd(given);
  const { say } = given;
  await using cluster = await startCluster({ name: "bench", nodeName: "bench", provider: "docker", say });
  await using pods = await openPods(cluster);
  const lab = { ...given, cluster, pods };
  if (scenarios.some((name) => name !== "idle")) for (const round of [1, 2]) await turn(lab, round, scenarios);
  if (scenarios.includes("idle")) await idle(lab);
}

/** What exec carries where the runtime is containerd. */
async function onContainerd({ ledger, say }: Pick<BenchLab, "ledger" | "say">): Promise<void> {
  await using cluster = await startCluster({ name: "bench", nodeName: "bench", provider: "cri", say });
  await using pods = await openPods(cluster);
  await using _agent = await graftlet.start(cluster);
  await standing(pods, execTarget, { nodeName: cluster.nodeName });
  say(`${who} on containerd: streams`);
  for (const round of [1, 2])
    ledger.note("exec rate", containerdPath, round, await execRate(cluster, streamedMebibytes));
}

async function turn(lab: BenchLab, round: number, scenarios: readonly string[]): Promise<void> {
  const { cluster, pods, ledger, say } = lab;
  await using agent = await graftlet.start(cluster);
  const warm = numbered(`warm-${round}`, 3);
  for (const name of warm) await live(pods, name, idlePod(cluster.nodeName));
  await clear(pods, warm);
  if (scenarios.includes("start")) {
    say(`round ${round}, ${who}: start`);
    await startsOf(lab, { who, round });
  }
  if (scenarios.includes("kill")) {
    say(`round ${round}, ${who}: kill`);
    await kill(lab, { who, round, agent });
  }
  if (scenarios.includes("streams")) {
    say(`round ${round}, ${who}: streams`);
    await standing(pods, execTarget, { nodeName: cluster.nodeName });
    ledger.note("exec rate", who, round, await execRate(cluster, streamedMebibytes));
  }
  await agent.stop();
  if (!scenarios.includes("start")) return;
  say(`round ${round}, ${dockerLoop}: start`);
  await using loop = await openDockerLoop(cluster);
  for (const name of numbered(`one-${round}`, 15)) ledger.note("start", dockerLoop, round, await loop.run(name));
  await loop.end();
}

/** What a node with fifty pods, with which nothing happens, asks of the engine. */
async function idle({ cluster, pods, ledger, say }: BenchLab): Promise<void> {
  const calls = new Map<string, number>();
  const sockets = { socket: join(cluster.layout.dir, "counted.sock"), upstream: cluster.runtimeSocket };
  await using _proxy = await startDockerProxy(sockets, (method, url) => {
    const call = `${method} ${pathOf(url)}`;
    calls.set(call, (calls.get(call) ?? 0) + 1);
  });
  await using agent = await graftlet.start(cluster, { runtimeSocket: sockets.socket });
  say(`${who}: ${idleCount} pods are started and left alone`);
  const names = numbered("idle", idleCount);
  for (let from = 0; from < names.length; from += 10)
    await Promise.all(names.slice(from, from + 10).map((name) => live(pods, name, idlePod(cluster.nodeName))));
  await sleep(settleMs);
  calls.clear();
  const cpu = cpuSeconds(agent.pid);
  await sleep(watchedMs);
  const minutes = watchedMs / 60_000;
  ledger.note("idle cpu", who, 1, (cpuSeconds(agent.pid) - cpu) / minutes);
  const relists = calls.get("GET /containers/json") ?? 0;
  const all = [...calls.values()].reduce((sum, count) => sum + count, 0);
  ledger.note("relists", who, 1, relists / minutes);
  ledger.note("other calls", who, 1, (all - relists) / minutes);
  say(`  asked of the engine: ${[...calls].map(([call, count]) => `${call} ${count}`).join(", ")}`);
}

/** A call's path without the API's version, what it names, and its query. */
function pathOf(url: string): string {
  const { pathname } = new URL(url, "http://engine");
  return pathname.replace(/^\/v[\d.]+/, "").replace(/\/[0-9a-f]{64}(?=\/|$)/, "/ID");
}
