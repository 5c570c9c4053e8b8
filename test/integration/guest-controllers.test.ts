import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { untilReadiness } from "../harness/docker-lab.ts";
import { runDoctor } from "../harness/graftlet-run.ts";
import { patience } from "../harness/wait.ts";

const complaint =
  "system validation failed - the kernel lacks cgroup controllers: \\[memory\\]: enable them on its command line";

// A Raspberry Pi is such a machine, as its system is installed.
describe("a machine whose kernel has no memory controller", { timeout: patience(300_000) }, () => {
  let cluster: Cluster;
  let agent: Agent;

  before(async () => {
    cluster = await startCluster({ name: "guest-controllers", guest: { system: "no-memory-cgroup" } });
    agent = await startGraftlet(cluster, { untilReady: false });
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("the node is not Ready, and its condition names the missing controller and the remedy", async () => {
    await untilReadiness(cluster, new RegExp(complaint));
    assert.ok(agent.isRunning());
  });

  test("graftlet doctor reports the missing controller and the remedy", async () => {
    const { code, stdout } = await runDoctor(cluster, agent, patience(60_000));
    assert.equal(code, 1, stdout);
    assert.match(stdout, new RegExp(complaint));
  });
});
