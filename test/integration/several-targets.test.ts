import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Agent } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { openPods, type Pods, shell } from "../harness/pods.ts";
import { addDockerEngine, allReady, entryApart, readyCondition, startSeveral } from "../harness/several-nodes.ts";
import { strayLines } from "../harness/several-nodes.ts";
import { sshSettings } from "../harness/sshd.ts";

const names = ["on-containerd", "on-docker", "over-ssh"] as const;
const [stopped, ...others] = names;

// One machine with two runtimes and an sshd stands for three: each node has folders, a cgroup and a network of its own.
describe("three targets in one process: containerd, Docker, and a machine over SSH", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let pods: Pods;

  const entry = (name: string, provider: string, providerConfig: object) =>
    entryApart(cluster, { name, provider, providerConfig });
  /** Milliseconds from the creation of pods, one on each of these nodes, until each is Ready. */
  const timesToReady = (label: string, nodes: readonly string[]): Promise<number[]> =>
    Promise.all(
      nodes.map(async (nodeName) => {
        const since = performance.now();
        await pods.create(`${label}-${nodeName}`, {
          nodeName,
          containers: [shell("echo hello from $HOSTNAME; sleep 3600")],
        });
        await pods.ready(`${label}-${nodeName}`);
        return performance.now() - since;
      }),
    );
  /** The best of three rounds on each node: what the machine does besides is not asked. */
  const bestTimes = async (label: string, nodes: readonly string[]): Promise<number[]> => {
    const rounds: number[][] = [];
    for (const round of ["a", "b", "c"]) rounds.push(await timesToReady(`${label}-${round}`, nodes));
    return nodes.map((_, index) => Math.min(...rounds.map((times) => times[index] ?? Number.POSITIVE_INFINITY)));
  };
  const report = (what: string, times: readonly number[]): void =>
    console.log(`${what}: ${times.map((ms) => `${Math.round(ms)} ms`).join(", ")}`);

  before(async () => {
    cluster = await startCluster({ name: "targets", provider: "ssh" });
    const { layout, runtimeSocket } = cluster;
    const socket = await addDockerEngine(cluster);
    const overSsh = {
      ...sshSettings(layout, "ssh-docker", socket),
      rootDir: join(layout.dir, "over-ssh", "kubelet"),
      docker: { podCIDR: "10.244.108.0/24" },
    };
    agent = await startSeveral(cluster, "three", {
      nodes: [
        entry("on-containerd", "cri", { endpoint: `unix://${runtimeSocket}` }),
        entry("on-docker", "docker", { socket: `unix://${socket}`, podCIDR: "10.244.107.0/24" }),
        entry("over-ssh", "ssh", overSsh),
      ],
      args: ["-v=10"],
    });
    await allReady(cluster, names, agent);
    pods = await openPods(cluster);
  });
  after(async () => {
    await pods?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("all three targets run pods, with logs and exec through each node's port", async () => {
    report("create to Ready", await timesToReady("first", names));
    for (const name of names) {
      // A container that runs may not yet have said it.
      const said = () => cluster.mustKubectl(["logs", `first-${name}`]);
      await cluster.waitFor("its word", async () => (await said()) === `hello from first-${name}\n`);
      assert.equal(await cluster.mustKubectl(["exec", `first-${name}`, "--", "hostname"]), `first-${name}\n`);
    }
    const versions = await cluster.mustKubectl([
      "get",
      "nodes",
      "--output=jsonpath={range .items[*]}{.metadata.name} {.status.daemonEndpoints.kubeletEndpoint.Port} {.status.nodeInfo.containerRuntimeVersion}{'\\n'}{end}",
    ]);
    assert.match(versions, /^on-containerd 10250 containerd:.*\non-docker 10251 docker:.*\nover-ssh 10252 docker:/);
  });

  test("a hanging runtime delays only its own node", async () => {
    const before = await bestTimes("before", others);
    cluster.signalRuntime("SIGSTOP");
    let during: number[];
    try {
      // Something of the node that hangs is under way meanwhile, and fills what it could fill.
      await pods.create("hangs", { nodeName: stopped });
      await cluster.waitFor(
        "the node to say that its runtime does not answer",
        async () => (await readyCondition(cluster, stopped))?.status === "False",
        { timeoutMs: 120_000, explain: () => agent.log().slice(-3000) },
      );
      during = await bestTimes("during", others);
      for (const name of others)
        assert.equal(await cluster.mustKubectl(["exec", `during-c-${name}`, "--", "hostname"]), `during-c-${name}\n`);
      for (const name of others) assert.equal((await readyCondition(cluster, name))?.status, "True");
    } finally {
      cluster.signalRuntime("SIGCONT");
    }
    report("create to Ready on the others before", before);
    report("and while a runtime hangs", during);
    // Whoever waits for a runtime that hangs waits for half a minute; a machine that does other things is late by less.
    for (const [index, ms] of during.entries()) assert.ok(ms < 2 * (before[index] ?? 0) + 5_000, `${ms} ms`);
    await allReady(cluster, names, agent);
    await pods.ready("hangs");
  });

  test("at the highest verbosity, every log line names its node", async () => {
    assert.equal(await agent.stop(), true);
    const lines = agent.log().split("\n");
    for (const name of names)
      assert.ok(
        lines.some((line) => line.includes(`"node":"${name}"`)),
        name,
      );
    assert.deepEqual(strayLines(agent), []);
  });
});
