// One graftlet with ten nodes, eight of them on targets that turn hostile in turn: `make endure FOR=minutes`. Fails when graftlet ends, when
// a node that is not attacked does not answer, when an attacked one does not come back, or when graftlet has grown by more than 32 MiB.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Agent } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { heapOf, heapReporting } from "../harness/heap.ts";
import { dockerAttacks } from "../harness/hostile-engine.ts";
import { startHostileFront } from "../harness/hostile-front.ts";
import { grpcAttacks } from "../harness/hostile-http2.ts";
import { sshAttacks } from "../harness/hostile-ssh-attacks.ts";
import { startHostileSsh } from "../harness/hostile-ssh.ts";
import { openPods, shell } from "../harness/pods.ts";
import { textOf } from "../harness/processes.ts";
import { addDockerEngine, allReady, entryApart, type NodeEntry, startSeveral } from "../harness/several-nodes.ts";

const minutes = Number(process.env.FOR || 10);
/** Longest time that an attack lasts, that another node takes to answer, and that an attacked node takes to come back, milliseconds. */
const [attackMs, mostAnswerMs, mostBackMs] = [15_000, 10_000, 180_000];
/** So many attacks come before the first measurement, and so long nothing happens before each, milliseconds. */
const [warmUpAttacks, settleMs] = [16, 45_000];
const mostGrowthMiB = 32;
/** Clear of the ports that the cluster's own programs have on the machine. */
const firstPort = 11_000;

/** A node whose target attacks. */
interface Attacked {
  readonly name: string;
  readonly attacks: readonly string[];
  attack(name: string): Promise<void>;
  rest(): Promise<void>;
}

const namesOf = (attacks: object): string[] => Object.keys(attacks).filter((name) => name !== "none");

async function makeTargets(
  cluster: Cluster,
  hold: (target: AsyncDisposable) => void,
): Promise<{ entries: NodeEntry[]; attacked: Attacked[] }> {
  const { layout, runtimeSocket } = cluster;
  const engine = await addDockerEngine(cluster);
  const cri = (socket: string) => ({ endpoint: `unix://${socket}`, sharing: "shared" });
  const entries = ["steady-1", "steady-2"].map((name) =>
    entryApart(cluster, { name, provider: "cri", providerConfig: cri(runtimeSocket) }),
  );
  const attacked: Attacked[] = [];
  for (const name of ["ssh-1", "ssh-2", "ssh-3", "ssh-4"]) {
    const target = await startHostileSsh("none", (argv) => cluster.spawnInside(argv));
    hold(target);
    const providerConfig = {
      ...target.fields,
      runtime: `unix://${runtimeSocket}`,
      rootDir: join(layout.dir, name, "kubelet"),
      network: "routed",
      cri: { sharing: "shared" },
    };
    const { rootDir: _, ...entry } = entryApart(cluster, { name, provider: "ssh", providerConfig });
    entries.push(entry);
    attacked.push({ name, attacks: namesOf(sshAttacks), attack: target.attack, rest: target.rest });
  }
  for (const [index, name] of ["cri-1", "cri-2", "docker-1", "docker-2"].entries()) {
    const provider = name.startsWith("cri") ? "cri" : "docker";
    const folder = join(layout.dir, `${name}-socket`);
    mkdirSync(folder);
    const socket = join(folder, "hostile.sock");
    const front =
      provider === "cri"
        ? await startHostileFront(cluster, "grpc", { socket, runtime: runtimeSocket })
        : await startHostileFront(cluster, "docker", { socket, runtime: engine });
    hold(front);
    const docker = { socket: `unix://${socket}`, podCIDR: `10.244.${110 + index}.0/24` };
    entries.push(entryApart(cluster, { name, provider, providerConfig: provider === "cri" ? cri(socket) : docker }));
    const attacks = namesOf(provider === "cri" ? grpcAttacks : dockerAttacks);
    attacked.push({ name, attacks, attack: front.attack, rest: front.rest });
  }
  return { entries: entries.map((entry, index) => ({ ...entry, port: firstPort + index })), attacked };
}

/** Resident set of a process as it stands, MiB. */
const residentMiB = (pid: number): number => Number(/^VmRSS:\s+(\d+)/m.exec(textOf(`/proc/${pid}/status`))?.[1]) / 1024;

async function endure(cluster: Cluster, agent: Agent, nodes: readonly string[], attacked: readonly Attacked[]) {
  const failures: string[] = [];
  const answers: number[] = [];
  const fail = (what: string): void => {
    failures.push(what);
    console.log(`FAILED: ${what}`);
  };
  const execOn = async (node: string): Promise<number> => {
    const begun = performance.now();
    const { stdout, stderr } = await cluster.kubectl(["exec", `on-${node}`, "--", "echo", "served"]);
    if (stdout !== "served\n") throw new Error(`exec on ${node}: ${stderr.trim()}`);
    return performance.now() - begun;
  };
  const oneAttack = async (target: Attacked, attack: string): Promise<void> => {
    const what = `${target.name}: ${attack}`;
    const others = nodes.filter((name) => name !== target.name);
    const until = performance.now() + attackMs;
    let slowest = 0;
    await target.attack(attack);
    do {
      for (const node of others) {
        const ms = await execOn(node).catch((error: unknown) => {
          fail(`${what}: ${String(error)}`);
          return 0;
        });
        answers.push(ms);
        slowest = Math.max(slowest, ms);
        if (ms > mostAnswerMs) fail(`${what}: exec on ${node} took ${Math.round(ms)} ms`);
      }
    } while (performance.now() < until);
    await target.rest();
    const since = performance.now();
    const back = async (): Promise<boolean> => (await execOn(target.name)) > 0;
    await cluster
      .waitFor(`${target.name} to answer again`, back, { timeoutMs: mostBackMs, everyMs: 1_000 })
      .catch((error: unknown) => fail(`${what}: ${String(error)}`));
    const backS = ((performance.now() - since) / 1000).toFixed(1);
    console.log(
      `${new Date().toISOString()} ${what}: others answered in at most ${Math.round(slowest)} ms, back after ${backS} s, ${residentMiB(agent.pid).toFixed(0)} MiB`,
    );
  };
  let turn = 0;
  const attackUntil = async (isOver: () => boolean): Promise<void> => {
    for (; !isOver() && agent.isRunning(); turn += 1) {
      const target = attacked[turn % attacked.length];
      if (!target) return;
      // Nodes of one kind take its attacks in turn; each node's turn comes once in a round of all.
      const kin = attacked.filter(({ attacks }) => attacks[0] === target.attacks[0]);
      const nth = Math.floor(turn / attacked.length) * kin.length + kin.indexOf(target);
      await oneAttack(target, target.attacks[nth % target.attacks.length] ?? "");
    }
  };
  /** Resident set at rest as it stands, and then what lives after a collection, MiB. */
  const measured = async (): Promise<{ rss: number; live: number; collected: number }> => {
    await sleep(settleMs);
    const rss = residentMiB(agent.pid);
    const { live, rss: collected } = await heapOf(agent, join(cluster.layout.dir, "heap.json"));
    console.log(
      `at rest: ${rss.toFixed(1)} MiB resident, ${collected.toFixed(1)} MiB after a collection, of which ${live.toFixed(1)} MiB live`,
    );
    return { rss, live, collected };
  };
  await attackUntil(() => turn >= warmUpAttacks);
  const before = await measured();
  const end = performance.now() + minutes * 60_000;
  await attackUntil(() => performance.now() >= end);
  if (!agent.isRunning()) throw new Error(`graftlet ended: ${agent.log().slice(-3000)}`);
  const after = await measured();
  await allReady(cluster, nodes, agent).catch((error: unknown) => fail(String(error)));
  const growth = after.rss - before.rss;
  if (growth > mostGrowthMiB) fail(`graftlet has grown by ${growth.toFixed(1)} MiB`);
  answers.sort((one, other) => one - other);
  const at = (share: number): number => Math.round(answers[Math.floor((answers.length - 1) * share)] ?? 0);
  console.log(
    `${turn} attacks, ${answers.length} execs on other nodes: median ${at(0.5)} ms, 99 % within ${at(0.99)} ms, longest ${at(1)} ms; grown by ${growth.toFixed(1)} MiB resident, ${(after.live - before.live).toFixed(1)} MiB live; ${failures.length} failures`,
  );
  return failures.length === 0;
}

await using stack = new AsyncDisposableStack();
const cluster = stack.use(await startCluster({ name: "endure", provider: "cri" }));
const { entries, attacked } = await makeTargets(cluster, (target) => void stack.use(target));
const agent = stack.use(
  await startSeveral(cluster, "endure", {
    nodes: entries,
    env: heapReporting(join(cluster.layout.dir, "heap.json")),
  }),
);
const names = entries.map(({ name }) => name);
await allReady(cluster, names, agent);
const pods = stack.use(await openPods(cluster));
for (const nodeName of names) {
  await pods.create(`on-${nodeName}`, { nodeName, containers: [shell("sleep 36000")] });
  await pods.ready(`on-${nodeName}`);
}
process.exitCode = (await endure(cluster, agent, names, attacked)) ? 0 : 1;
