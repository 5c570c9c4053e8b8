import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { cpuSeconds } from "../bench/usage.ts";
import type { Agent } from "../harness/agent.ts";
import { type Api, openApi } from "../harness/api.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startFleet } from "../harness/fake-fleet.ts";
import { type FleetSight, fleetSight, seconds } from "../harness/fleet-sight.ts";
import { heapReporting } from "../harness/heap.ts";
import { run } from "../harness/processes.ts";
import { createLogin, createSshPool, type SshMachines, startSshMachines } from "../harness/ssh-machines.ts";
import { makeKey } from "../harness/sshd.ts";
import { whole } from "../matrix.ts";

/** Three hundred take some minutes on two processors. */
const count = whole ? 300 : 20;
const names = Array.from({ length: count }, (_, index) => `edge-${index + 1}`);
/** Longest time to start one more node, milliseconds. It is two seconds on an idle machine; other tests beside this one take most of it. */
const longestMs = whole ? 2_000 : 6_000;
/** Time in which each link carries some traffic by itself, and in which nothing may happen to the others, milliseconds. */
const quietMs = 15_000;

describe("many GraftedNodes whose machines are reached over SSH, in one process", { timeout: 1_500_000 }, () => {
  let cluster: Cluster;
  let machines: SshMachines;
  let agent: Agent;
  let api: Api;
  let fleet: FleetSight;

  before(async () => {
    cluster = await startCluster({ name: "fleet-ssh", provider: "ssh", audited: "system:authenticated" });
    machines = await startSshMachines(cluster, Math.ceil(count / 50));
    const report = join(cluster.layout.dir, "heap.json");
    agent = await startFleet(cluster, "fleet", heapReporting(report));
    api = openApi(cluster.layout);
    await createSshPool(cluster, api);
    fleet = fleetSight({ cluster, agent, api, report });
    const listed = () => agent.log().includes("graftlet is starting");
    await cluster.waitFor("graftlet to start", listed, { explain: () => agent.log() });
  });
  after(async () => {
    api?.[Symbol.dispose]();
    await agent?.[Symbol.asyncDispose]();
    await machines?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  const traffic = async (name: string) => {
    const seen = (await machines.traffic())[name];
    assert.ok(seen, name);
    return seen;
  };
  /** Connections of these machines that are no more, or that did not log in. A node that needs more sessions opens another connection. */
  const losses = async (among: readonly string[]) => {
    const all = await machines.traffic();
    return among.map((name) => {
      const { connections = 0, logins = 0, open = 0 } = all[name] ?? {};
      return { name, lost: connections - open, refused: connections - logins, isLinked: open > 0 };
    });
  };
  const bytes = async (among: readonly string[]) => {
    const traffic = await machines.traffic();
    return among.map((name) => traffic[name]?.bytesReceived ?? 0);
  };
  const lockOf = (name: string) => machines.fileOf(name, `/var/lib/kubelet/${name}/graftlet/lock`);
  const isLocked = async (name: string) => (await run(["flock", "--nonblock", lockOf(name), "true"])).code === 1;

  test("GraftedNodes become Ready Nodes when they are applied at once, over connections that last", async () => {
    const objects = [];
    for (const name of names) objects.push(await machines.start(name));
    const used = () => machines.pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0);
    const before = used();
    console.log(await fleet.startAll(objects));
    console.log(`the machines' SSH servers and runtimes: ${(used() - before).toFixed(1)} s of a processor`);
    assert.deepEqual(new Set((await fleet.standing(names)).map(({ starts }) => starts)), new Set([1]));
    const linked = names.map((name) => ({ name, lost: 0, refused: 0, isLinked: true }));
    assert.deepEqual(await losses(names), linked);
    assert.equal(await isLocked("edge-1"), true);
  });

  test("one more GraftedNode is a Ready Node within seconds, and changes no other node and no other link", async () => {
    const before = [await fleet.standing(names), await losses(names)];
    const carried = await bytes(names);
    const times: number[] = [];
    for (const name of ["edge-more-1", "edge-more-2", "edge-more-3"]) {
      times.push(await fleet.startOne(await machines.start(name)));
      await fleet.untilSettled();
    }
    console.log(`one more object was Ready after ${times.map(seconds).join(", ")}`);
    assert.deepEqual([await fleet.standing(names), await losses(names)], before);
    const now = await bytes(names);
    assert.deepEqual(
      names.filter((_, index) => now[index] === carried[index]),
      [],
    );
    assert.ok(Math.min(...times) <= longestMs, times.join());
  });

  test("a GraftedNode whose machine has another host key, or refuses the login, is not Linked", async () => {
    const hostKeyFingerprints = [`SHA256:${"A".repeat(43)}`];
    await fleet.create(await machines.start("edge-stranger", { hostKeyFingerprints }));
    const key = join(cluster.layout.dir, "other-login");
    await makeKey(key);
    await createLogin(api, "other", key);
    await fleet.create(await machines.start("edge-refusing", { secretRef: { name: "other" } }));
    await fleet.untilSays("edge-stranger", "Linked", "HostKeyMismatch");
    await fleet.untilSays("edge-refusing", "Linked", "LoginRefused");
    for (const name of ["edge-stranger", "edge-refusing"]) {
      const { connections, logins } = await traffic(name);
      assert.deepEqual([connections > 0, logins], [true, 0], name);
    }
  });

  test("deleting a GraftedNode cleans its machine and hangs up, and changes no other node and no other link", async () => {
    const [leaving, ...others] = names;
    assert.ok(leaving !== undefined);
    const before = [await fleet.standing(others), await losses(others)];
    const took = await fleet.removeOne(leaving);
    console.log(`a deleted object was gone after ${seconds(took)}`);
    assert.ok(took < 20_000, seconds(took));
    assert.equal(existsSync(machines.fileOf(leaving, `/var/lib/kubelet/${leaving}`)), false);
    assert.equal((await traffic(leaving)).open, 0);
    await sleep(quietMs);
    assert.deepEqual([await fleet.standing(others), await losses(others)], before);
  });

  test("graftlet stops, and unlocks and leaves all machines", async () => {
    assert.equal(await isLocked("edge-2"), true);
    assert.equal(await agent.stop(60_000), true);
    await cluster.waitFor("the lock to be released", async () => !(await isLocked("edge-2")));
    const open = Object.values(await machines.traffic()).map((seen) => seen.open);
    assert.deepEqual(new Set(open), new Set([0]));
  });
});
