import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import type { GraftedNode } from "../../../src/fleet/grafted-node.ts";
import type { Replica } from "../../../src/fleet/own-lease.ts";
import { createSharing } from "../../../src/fleet/sharing.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { runGroup } from "../../../src/lib/runnables.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { simulatedApi, simulatedProcess } from "../../fakes/fleet-world.ts";

const site: Replica = { name: "site", uid: "account.1", accountUID: "account" };
const pod = (uid: string): Replica => ({ name: uid, uid });

const machine = (name: string): GraftedNode => ({
  metadata: { name, namespace: "edge", uid: `uid-${name}`, generation: 1 },
  spec: { ssh: { host: name } },
});

/** Replicas that share machines, of which those named `pod-…` need a Pod. */
function world(t: TestContext, names: readonly string[]) {
  const clock = fakeClock();
  const api = simulatedApi(clock);
  const put = (name: string) => api.put("graftednodes", machine(name));
  names.forEach(put);
  const objects = () => api.objects("graftednodes") as unknown as readonly GraftedNode[];
  const start = (self: Replica) => {
    const process = simulatedProcess(clock, api, () => 0.1, self.uid);
    const serving = { stop: () => Promise.resolve(), resume: () => undefined, isServed: () => true };
    const sharing = createSharing({
      client: process.client,
      clock: process.clock,
      log: silentLog(),
      namespace: "edge",
      release: "r",
      self,
      nodes: { ...serving, objects, needsPod: ({ metadata }) => metadata.name.startsWith("pod-") },
      pools: { ...serving, objects: () => [] },
      reach: () => Promise.reject(new Error("unused")),
      onReplicasChange: () => undefined,
    });
    const stop = new AbortController();
    void runGroup(sharing.running, stop.signal);
    t.after(() => {
      process.kill();
      stop.abort();
    });
    return { process, sharing };
  };
  const owners = () => Object.fromEntries(objects().map(({ metadata, status }) => [metadata.name, status?.owner?.uid]));
  const countsOf = (prefix: string) => {
    const counts: Record<string, number> = {};
    for (const [name, owner = ""] of Object.entries(owners()))
      if (name.startsWith(prefix)) counts[owner] = (counts[owner] ?? 0) + 1;
    return counts;
  };
  /** Objects change: each replica looks at them, as with an event of its watch. */
  const advance = async (ms: number, all: readonly ReturnType<typeof start>[]) => {
    for (let left = ms; left > 0; left -= 1_000) {
      await clock.advance(Math.min(left, 1_000));
      for (const { sharing } of all) sharing.nodes.check();
    }
  };
  return { start, advance, countsOf, api };
}

const machines = ["m-1", "m-2", "m-3", "m-4", "pod-1", "pod-2", "pod-3"];

test("a replica outside the cluster gets its share of the machines that it may serve, and none that need a Pod", async (t) => {
  const { start, advance, countsOf } = world(t, machines);
  const all = [start(pod("a"))];
  await advance(10_000, all);
  assert.deepEqual([countsOf("m-"), countsOf("pod-")], [{ a: 4 }, { a: 3 }]);
  all.push(start(site));
  await advance(60_000, all);
  assert.deepEqual([countsOf("m-"), countsOf("pod-")], [{ a: 2, "account.1": 2 }, { a: 3 }]);
});

test("machines that need a Pod wait for one, and the others are served by the replica outside the cluster", async (t) => {
  const { start, advance, countsOf } = world(t, machines);
  const [a, outside] = [start(pod("a")), start(site)];
  await advance(60_000, [a, outside]);
  a.process.kill();
  await advance(60_000, [outside]);
  assert.deepEqual([countsOf("m-"), countsOf("pod-")], [{ "account.1": 4 }, { a: 3 }]);
  assert.equal(outside.sharing.nodes.unowned(), 3);
  const b = start(pod("b"));
  await advance(60_000, [b, outside]);
  assert.deepEqual([countsOf("m-"), countsOf("pod-")], [{ b: 2, "account.1": 2 }, { b: 3 }]);
});

test("a replica outside the cluster gives away a machine that has come to need a Pod", async (t) => {
  const { start, advance, countsOf, api } = world(t, []);
  const all = [start(pod("a")), start(site)];
  const owner = { replica: "site", uid: "account.1", epoch: 1, since: "" };
  api.put("graftednodes", { ...machine("pod-1"), status: { owner } });
  await advance(30_000, all);
  assert.deepEqual(countsOf("pod-"), { a: 1 });
});
