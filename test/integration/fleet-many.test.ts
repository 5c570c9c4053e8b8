import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Agent } from "../harness/agent.ts";
import { type Api, openApi } from "../harness/api.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { createFakePool, fakeMachine, startFakeFleet } from "../harness/fake-fleet.ts";
import { type FleetSight, fleetSight, seconds } from "../harness/fleet-sight.ts";
import { heapReporting } from "../harness/heap.ts";
import { whole } from "../matrix.ts";

/** Three hundred take some minutes on two processors. */
const count = whole ? 300 : 60;
const names = Array.from({ length: count }, (_, index) => `edge-${index + 1}`);
/** Longest time to start one more node, milliseconds. It is two seconds on an idle machine; other tests beside this one take most of it. */
const longestMs = whole ? 2_000 : 6_000;
/** Time in which nothing may happen to the others, milliseconds. */
const quietMs = 5_000;

describe("many GraftedNodes with in-memory machines in one process", { timeout: 850_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let api: Api;
  let fleet: FleetSight;

  before(async () => {
    cluster = await startCluster({ name: "fleet-many", provider: "ssh", audited: "system:authenticated" });
    const report = join(cluster.layout.dir, "heap.json");
    agent = await startFakeFleet(cluster, "fleet", heapReporting(report));
    api = openApi(cluster.layout);
    await createFakePool(api);
    fleet = fleetSight({ cluster, agent, api, report });
    const listed = () => agent.log().includes("graftlet is starting");
    await cluster.waitFor("graftlet to start", listed, { explain: () => agent.log() });
  });
  after(async () => {
    api?.[Symbol.dispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("GraftedNodes become Ready Nodes when they are applied at once", async () => {
    console.log(await fleet.startAll(names.map(fakeMachine)));
    assert.deepEqual(new Set((await fleet.standing(names)).map(({ starts }) => starts)), new Set([1]));
  });

  test("adding one more GraftedNode changes no other node, and its Node is Ready within seconds", async () => {
    const before = await fleet.standing(names);
    const times: number[] = [];
    for (const name of ["edge-more-1", "edge-more-2", "edge-more-3"]) {
      times.push(await fleet.startOne(fakeMachine(name)));
      await fleet.untilSettled();
    }
    console.log(`one more object was Ready after ${times.map(seconds).join(", ")}`);
    assert.deepEqual(await fleet.standing(names), before);
    assert.ok(Math.min(...times) <= longestMs, times.join());
  });

  test("deleting a GraftedNode changes no other node, and the object is gone within seconds", async () => {
    const [leaving, ...others] = names;
    assert.ok(leaving !== undefined);
    const before = await fleet.standing(others);
    const took = await fleet.removeOne(leaving);
    console.log(`a deleted object was gone after ${seconds(took)}`);
    assert.ok(took < 20_000, seconds(took));
    await sleep(quietMs);
    assert.deepEqual(await fleet.standing(others), before);
    assert.equal(await agent.stop(60_000), true);
  });
});
