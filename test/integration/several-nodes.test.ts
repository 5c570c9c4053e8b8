import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Pod } from "../../src/objects.ts";
import type { Agent } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { heapOf, heapReporting } from "../harness/heap.ts";
import { allReady, type NodeEntry, readyCondition, startSeveral, strayLines } from "../harness/several-nodes.ts";

const kubeletConfiguration = { failSwapOn: false, failCgroupV1: false };
const namesTo = (count: number): string[] => Array.from({ length: count }, (_, index) => `node-${index + 1}`);
const inMemory = (name: string): NodeEntry => ({ name, provider: "fake", kubeletConfiguration });
/** Clear of the ports that the cluster's own programs have on the machine. */
const firstPort = 11_000;

describe("many nodes with in-memory machines in one process", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let report: string;
  before(async () => {
    cluster = await startCluster({ name: "several", provider: "cri" });
    report = join(cluster.layout.dir, "heap.json");
  });
  after(async () => cluster?.[Symbol.asyncDispose]());

  const healthy = async (path: string): Promise<boolean> =>
    (await cluster.runInside(["curl", "--silent", "--max-time", "5", `http://127.0.0.1:10248${path}`])).stdout === "ok";
  const start = async (count: number): Promise<Agent> => {
    const nodes = namesTo(count).map((name, index) => ({ ...inMemory(name), port: firstPort + index }));
    const agent = await startSeveral(cluster, `of-${count}`, { nodes, env: heapReporting(report) });
    await allReady(cluster, namesTo(count), agent);
    return agent;
  };

  test("many nodes cost at most 5 MiB each when idle, run a pod each, and name the node in every log line", async () => {
    const alone = await start(1);
    const one = await heapOf(alone, report);
    assert.equal(await alone.stop(), true);
    await using agent = await start(21);
    const all = await heapOf(agent, report);
    const each = (all.rss - one.rss) / 20;
    console.log(
      `resident: ${one.rss.toFixed(0)} MiB with one node, ${all.rss.toFixed(0)} MiB with 21: ${each.toFixed(1)} MiB each`,
    );
    assert.ok(each <= 5, `${each} MiB`);
    const pods = namesTo(21).map((nodeName) => ({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: `on-${nodeName}` },
      spec: {
        nodeName,
        terminationGracePeriodSeconds: 1,
        containers: [{ name: "c", image: "busybox", command: ["sleep", "3600"] }],
      },
    }));
    await cluster.apply(pods);
    const running = async (): Promise<boolean> => {
      const { items } = JSON.parse(await cluster.mustKubectl(["get", "pods", "--output=json"])) as { items: Pod[] };
      return items.filter(({ status }) => status?.phase === "Running").length === 21;
    };
    await cluster.waitFor("a pod to run on each", running, {
      timeoutMs: 60_000,
      explain: async () => cluster.mustKubectl(["get", "pods", "--output=wide"]),
    });
    for (const path of ["/healthz", "/livez", "/readyz"]) assert.equal(await healthy(path), true);
    assert.equal(await agent.stop(), true);
    assert.deepEqual(strayLines(agent), []);
  });

  test("an unhandled error restarts only the node in which it occurs", async () => {
    const faultFile = join(cluster.layout.dir, "fault");
    const broken: NodeEntry = { ...inMemory("broken"), providerConfig: { faultFile }, port: firstPort + 1 };
    const names = ["sound", "broken"];
    await using agent = await startSeveral(cluster, "faulty", {
      nodes: [{ ...inMemory("sound"), port: firstPort }, broken],
    });
    await allReady(cluster, names, agent);
    await cluster.apply({
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name: "undisturbed" },
      spec: { nodeName: "sound", containers: [{ name: "c", image: "busybox", command: ["sleep", "3600"] }] },
    });
    const containerStatus = async () => (await cluster.get<Pod>("pod", "undisturbed"))?.status?.containerStatuses?.[0];
    const before = await cluster.waitFor("the pod to run", async () => {
      const status = await containerStatus();
      return status?.state?.running && status;
    });
    const renewed = async () =>
      Date.parse(
        (await cluster.get<{ spec: { renewTime: string } }>("lease", "sound", "kube-node-lease"))?.spec.renewTime ?? "",
      );
    const registrations = (name: string) =>
      agent
        .log()
        .split("\n")
        .filter((line) => line.includes(`"node":"${name}"`) && line.includes("node is registered")).length;
    writeFileSync(faultFile, "");
    const begun = Date.now();
    await cluster.waitFor("the broken node to have started again", () => registrations("broken") === 2, {
      timeoutMs: 60_000,
      explain: () => agent.log().slice(-3000),
    });
    console.log(`a node was run again ${Date.now() - begun} ms after an error that nothing handled`);
    assert.match(agent.log(), /"node":"broken".*"msg":"unhandled error"/);
    await allReady(cluster, names, agent);
    await cluster.waitFor("the sound node's lease to be renewed since", async () => (await renewed()) > begun + 5_000);
    assert.deepEqual(await containerStatus(), before);
    assert.equal(registrations("sound"), 1);
    assert.equal(await agent.stop(), true);
    assert.deepEqual(strayLines(agent), []);
  });

  test("a node that cannot start reports why in its Ready condition, and starts once that is fixed; others keep running", async () => {
    const portHolder = cluster.spawnInside(["socat", "TCP-LISTEN:10333,fork", "EXEC:cat"]);
    const host = { host: "127.0.0.1", port: 9, hostKeyFingerprints: [`SHA256:${"A".repeat(43)}`] };
    await using agent = await startSeveral(cluster, "failing", {
      nodes: [
        inMemory("sound"),
        { name: "no-user", provider: "ssh", providerConfig: host },
        { name: "no-key", provider: "ssh", providerConfig: { ...host, user: "root", privateKeyFile: "/no/such/key" } },
        { ...inMemory("no-port"), port: 10_333 },
        { name: "no-provider", provider: "nowhere" },
        { name: "no-socket", provider: "cri", providerConfig: { endpoint: "unix:///run/none/none.sock" } },
      ],
    });
    await allReady(cluster, ["sound"], agent);
    const untilSays = (name: string, reason: string, message: RegExp): Promise<boolean> =>
      cluster.waitFor(
        `node ${name} to say ${reason}`,
        async () => {
          const ready = await readyCondition(cluster, name);
          return ready?.status === "False" && ready.reason === reason && message.test(ready.message ?? "");
        },
        { timeoutMs: 60_000, explain: async () => JSON.stringify(await readyCondition(cluster, name)) + agent.log() },
      );
    await untilSays("no-user", "NodeNotStarted", /providerConfig.user is undefined/);
    await untilSays("no-key", "LoginRefused", /privateKeyFile cannot be read: .*no.such.key/);
    await untilSays("no-port", "NodeNotStarted", /port 10333 is taken on /);
    await untilSays("no-provider", "NodeNotStarted", /--provider "nowhere" is not known: use one of cri/);
    await untilSays("no-socket", "KubeletNotReady", /./);
    await cluster.waitFor("the process to be ready all the same", () => healthy("/readyz"));

    portHolder.kill("SIGKILL");
    await allReady(cluster, ["sound", "no-port"], agent);
    assert.equal(await agent.stop(), true);
    assert.deepEqual(strayLines(agent), []);
  });
});
