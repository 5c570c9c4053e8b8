import { openPods } from "../harness/pods.ts";
import { startCluster } from "../harness/cluster.ts";
import { type BenchLab, type Scenario, namesOf } from "./bench-lab.ts";
import { type Contender, graftlet, kubelet } from "./contenders.ts";
import { openBareLoop } from "./cri-loop.ts";
import { clear, idlePod, live, numbered } from "./moments.ts";
import { burst, burstSize } from "./scenarios/burst.ts";
import { claims } from "./scenarios/claims.ts";
import { deletion } from "./scenarios/delete.ts";
import { exec } from "./scenarios/exec.ts";
import { fill, idle } from "./scenarios/idle.ts";
import { kill } from "./scenarios/kill.ts";
import { probes } from "./scenarios/probes.ts";
import { ready } from "./scenarios/ready.ts";
import { restart } from "./scenarios/restart.ts";
import { start } from "./scenarios/start.ts";
import { streams } from "./scenarios/streams.ts";
import { cpuSeconds } from "./usage.ts";

const brief: Readonly<Record<string, Scenario>> = {
  start,
  delete: deletion,
  claims,
  burst,
  kill,
  ready,
  exec,
  streams,
};
const rounds = [1, 2];
export const bareLoop = "bare CRI loop";

/** The kubelet and graftlet in turn on one containerd, A-B-A-B, and before each pair the bare loop. */
export async function benchCri(given: Pick<BenchLab, "ledger" | "say">, scenarios: readonly string[]): Promise<void> {
  await using cluster = await startCluster({
    name: "bench",
    nodeName: "bench",
    provider: "cri",
    audited: "system:nodes",
    say: given.say,
  });
  await using pods = await openPods(cluster);
  const lab = { ...given, cluster, pods };
  const wanted = scenarios.filter((name) => name in brief);
  if (wanted.length > 0)
    for (const round of rounds) {
      await bare(lab, round, wanted);
      for (const contender of [kubelet, graftlet]) await turn(lab, contender, round, wanted);
    }
  if (scenarios.includes("probes"))
    for (const round of rounds) for (const contender of [kubelet, graftlet]) await probedTurn(lab, contender, round);
  const rest = scenarios.filter((name) => !(name in brief) && name !== "probes");
  if (rest.length === 0) return;
  // A node takes no more than the pods of which it is to be full.
  const left = ["exec-target", "talker"].filter((name) => pods.history(name).length > 0);
  for (const round of rounds)
    for (const contender of [kubelet, graftlet]) await fullTurn(lab, contender, round, { scenarios: rest, left });
}

async function bare({ cluster, ledger, say }: BenchLab, round: number, wanted: readonly string[]): Promise<void> {
  await using loop = await openBareLoop(cluster);
  if (wanted.includes("start")) {
    say(`round ${round}, ${bareLoop}: start`);
    for (const name of numbered(`one-${round}`, 15)) ledger.note("start", bareLoop, round, await loop.run(name));
  }
  await loop.end();
  if (!wanted.includes("burst")) return;
  say(`round ${round}, ${bareLoop}: burst`);
  const began = performance.now();
  await Promise.all(numbered(`many-${round}`, burstSize).map((name) => loop.run(name)));
  ledger.note("burst", bareLoop, round, (performance.now() - began) / 1000);
  ledger.note("burst gone", bareLoop, round, (await loop.end()) / 1000);
}

async function turn(
  lab: BenchLab,
  { who, start: startAgent }: Contender,
  round: number,
  wanted: readonly string[],
): Promise<void> {
  const { cluster, pods, ledger, say } = lab;
  await using agent = await startAgent(cluster);
  const warm = numbered(namesOf("warm", { who, round }), 3);
  for (const name of warm) await live(pods, name, idlePod(cluster.nodeName));
  await clear(pods, warm);
  const cpu = cpuSeconds(agent.pid);
  for (const name of wanted) {
    say(`round ${round}, ${who}: ${name}`);
    await brief[name]?.(lab, { who, round, agent });
  }
  ledger.note("cpu", who, round, cpuSeconds(agent.pid) - cpu);
  await agent.stop();
}

/** A turn of its own: what probing takes is no part of what all else takes. */
async function probedTurn(lab: BenchLab, { who, start: startAgent }: Contender, round: number): Promise<void> {
  await using agent = await startAgent(lab.cluster);
  lab.say(`round ${round}, ${who}: probes`);
  await probes(lab, { who, round, agent });
  await agent.stop();
}

/** A turn with a node full of pods; the first makes them, all others find them running. */
async function fullTurn(
  lab: BenchLab,
  { who, start: startAgent }: Contender,
  round: number,
  { scenarios, left }: { readonly scenarios: readonly string[]; readonly left: readonly string[] },
): Promise<void> {
  const { cluster, say } = lab;
  await using stack = new AsyncDisposableStack();
  let agent = await startAgent(cluster);
  stack.defer(() => agent[Symbol.asyncDispose]());
  await clear(lab.pods, left);
  await fill(lab);
  if (scenarios.includes("idle")) {
    say(`round ${round}, ${who}: idle`);
    await idle(lab, { who, round, agent });
  }
  if (scenarios.includes("restart")) {
    say(`round ${round}, ${who}: restart`);
    agent = await restart(lab, { who, round, agent }, () => startAgent(cluster, { untilReady: false }));
  }
  await agent.stop();
}
