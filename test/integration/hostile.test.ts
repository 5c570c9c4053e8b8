import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Lease } from "../../src/objects.ts";
import type { Agent } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type HostileSsh, startHostileSsh } from "../harness/hostile-ssh.ts";
import { type Pods, openPods, shell } from "../harness/pods.ts";
import { allReady, entryApart, readyCondition, startSeveral } from "../harness/several-nodes.ts";

const [steady, attacked] = ["steady", "attacked"] as const;
/** How much longer than before an exec on the other node may take meanwhile, milliseconds. */
const mostExtraMs = 1_000;

// The hostile target is the cluster's machine itself, by an SSH server that lies.
describe("a machine that turns hostile, next to another node in the same process", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let pods: Pods;
  let target: HostileSsh;

  const entry = (name: string, provider: string, providerConfig: object) =>
    entryApart(cluster, { name, provider, providerConfig });
  const execMs = async (): Promise<number> => {
    const begun = performance.now();
    const served = await cluster.mustKubectl(["exec", "here", "--", "echo", "served"]).catch((error: unknown) => {
      throw new Error(`exec on the other node: ${String(error)}\n${agent.log().slice(-3000)}`);
    });
    assert.equal(served, "served\n");
    return performance.now() - begun;
  };
  const renewed = async (): Promise<number> =>
    Date.parse(String((await cluster.get<Lease>("lease", steady, "kube-node-lease"))?.spec?.renewTime));

  before(async () => {
    cluster = await startCluster({ name: "hostile", provider: "cri" });
    const { layout, runtimeSocket } = cluster;
    target = await startHostileSsh("many at once", (argv) => cluster.spawnInside(argv));
    const { rootDir, ...rest } = entry(attacked, "ssh", {
      ...target.fields,
      runtime: `unix://${runtimeSocket}`,
      rootDir: join(layout.dir, attacked, "kubelet"),
      network: "routed",
      cri: { sharing: "shared" },
    });
    assert.ok(rootDir);
    agent = await startSeveral(cluster, "hostile", {
      nodes: [entry(steady, "cri", { endpoint: `unix://${runtimeSocket}`, sharing: "shared" }), rest],
    });
    await allReady(cluster, [steady, attacked], agent);
    pods = await openPods(cluster);
    await pods.create("here", { nodeName: steady, containers: [shell("sleep 3600")] });
    await pods.ready("here");
  });
  after(async () => {
    await pods?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await target?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("makes only its own node NotReady, with a reason; the other renews its Lease and answers exec", async () => {
    const usual = Math.max(await execMs(), await execMs(), await execMs());
    const since = Date.now();
    await target.begin();
    const during: number[] = [];
    let said = "";
    while (Date.now() - since < 20_000) {
      during.push(await execMs());
      const ready = await readyCondition(cluster, attacked);
      if (ready?.reason === "LimitExceeded") said = ready.message ?? "";
      assert.equal((await readyCondition(cluster, steady))?.status, "True");
    }
    console.log(`exec before: ${Math.round(usual)} ms, during: ${during.map(Math.round).join(", ")} ms`);
    assert.match(said, /(requested another login|sent) .*, which exceeds graftlet's limits/);
    // One of ten may be slower: other tests use the processors too.
    const slow = during.toSorted((a, b) => a - b)[Math.floor(during.length * 0.9)] ?? Infinity;
    assert.ok(slow <= usual + mostExtraMs, `one exec of ten took ${slow} ms or more, before ${usual} ms`);
    await cluster.waitFor("the Lease to be renewed", async () => (await renewed()) > since + 10_000, {
      timeoutMs: 20_000,
    });
  });
});
