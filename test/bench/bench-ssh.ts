import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { agentAddresses } from "../harness/agent-machine.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { openPods } from "../harness/pods.ts";
import { loginKeyFile } from "../harness/sshd.ts";
import { openSlowWay } from "../harness/ssh-way.ts";
import type { Agent } from "../harness/agent.ts";
import type { BenchLab } from "./bench-lab.ts";
import { graftlet } from "./contenders.ts";
import { clear, idlePod, live, numbered, standing } from "./moments.ts";
import { execTarget } from "./scenarios/exec.ts";
import { kill } from "./scenarios/kill.ts";
import { startsOf } from "./scenarios/start.ts";
import { execRate } from "./scenarios/streams.ts";

/** Milliseconds there and back. */
export const distances = [0, 20, 100] as const;
export const local = "local";
export const overSsh = (distance: number): string => `ssh, ${distance} ms`;
const rounds = [1, 2];
const streamedMebibytes = 256;

/** Graftlet on its target's own machine, and on another one from which the target is ever farther away. */
export async function benchSsh(given: Pick<BenchLab, "ledger" | "say">, scenarios: readonly string[]): Promise<void> {
  await using cluster = await startCluster({ name: "bench", nodeName: "bench", provider: "ssh", say: given.say });
  await using pods = await openPods(cluster);
  const lab = { ...given, cluster, pods };
  const onTarget: Cluster = {
    ...cluster,
    provider: "cri",
    agentAddress: cluster.nodeAddress,
    spawnAtAgent: cluster.spawnInside,
    runAtAgent: cluster.runInside,
  };
  for (const round of rounds) {
    await turn(lab, { who: local, round, scenarios }, () => graftlet.start(onTarget));
    for (const distance of distances) {
      await using way = await openSlowWay(cluster, distance);
      const { providerConfig } = way;
      await turn(lab, { who: overSsh(distance), round, scenarios }, () => graftlet.start(cluster, { providerConfig }));
      if (scenarios.includes("streams"))
        given.ledger.note("cat rate", overSsh(distance), round, await catRate(cluster, providerConfig.port));
    }
  }
}

async function turn(
  lab: BenchLab,
  { who, round, scenarios }: { readonly who: string; readonly round: number; readonly scenarios: readonly string[] },
  startAgent: () => Promise<Agent>,
): Promise<void> {
  const { cluster, pods, ledger, say } = lab;
  await using agent = await startAgent();
  const warm = numbered(`warm-${round}-${performance.now().toFixed(0)}`, 3);
  for (const name of warm) await live(pods, name, idlePod(cluster.nodeName));
  await clear(pods, warm);
  const column = { who, round, agent };
  if (scenarios.includes("start")) {
    say(`round ${round}, ${who}: start`);
    await startsOf(lab, column);
  }
  if (scenarios.includes("kill")) {
    say(`round ${round}, ${who}: kill`);
    await kill(lab, column);
  }
  if (scenarios.includes("streams")) {
    say(`round ${round}, ${who}: streams`);
    await standing(pods, execTarget, { nodeName: cluster.nodeName });
    ledger.note("exec rate", who, round, await execRate(cluster, streamedMebibytes));
  }
  await agent.stop();
}

/** MiB a second that OpenSSH carries on the same way, from a program that writes zeros. */
async function catRate(cluster: Cluster, port: number): Promise<number> {
  const nowhere = openSync("/dev/null", "w");
  const login = [
    "-i",
    loginKeyFile(cluster.layout),
    "-o",
    "StrictHostKeyChecking=no",
    "-o",
    "UserKnownHostsFile=/dev/null",
  ];
  const copy = `dd if=/dev/zero bs=1M count=${streamedMebibytes} status=none | cat`;
  const argv = ["ssh", "-q", ...login, "-p", String(port), "root@127.0.0.1", copy];
  const began = performance.now();
  const child = cluster.spawnAtAgent(argv, { stdio: ["ignore", nowhere, "inherit"] });
  closeSync(nowhere);
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) throw new Error(`ssh on port ${port} of ${agentAddresses.agent} failed with ${code}`);
  return streamedMebibytes / ((performance.now() - began) / 1000);
}
