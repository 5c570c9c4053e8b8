import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type GraftedNode, graftedNodePath, isReady } from "../../src/fleet/grafted-node.ts";
import type { Node } from "../../src/objects.ts";
import { cpuSeconds } from "../bench/usage.ts";
import type { Agent } from "../harness/agent.ts";
import { type Api, openApi } from "../harness/api.ts";
import { auditedSoFar, deedsOf } from "../harness/audit.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { createFakePool, fakeMachine, fleetRelease, startFakeFleet } from "../harness/fake-fleet.ts";
import { heapOf, heapReporting } from "../harness/heap.ts";
import { whole } from "../matrix.ts";

const { account, namespace } = fleetRelease;
/** Three hundred take some minutes on two processors. */
const count = whole ? 300 : 60;
const names = Array.from({ length: count }, (_, index) => `edge-${index + 1}`);
/** Longest time to start one more node, milliseconds. It is two seconds on an idle machine; other tests beside this one take most of it. */
const longestMs = whole ? 2_000 : 6_000;
/** Requests that create objects at the same time. */
const parallel = 30;
/** Time without any write before the state is compared, milliseconds. */
const settledMs = 5_000;

describe("many GraftedNodes with in-memory machines in one process", { timeout: 850_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;
  let api: Api;
  let report: string;

  before(async () => {
    cluster = await startCluster({ name: "fleet-many", provider: "ssh", audited: "system:authenticated" });
    report = join(cluster.layout.dir, "heap.json");
    agent = await startFakeFleet(cluster, "fleet", heapReporting(report));
    api = openApi(cluster.layout);
    await createFakePool(api);
    const listed = () => agent.log().includes("graftlet is starting");
    await cluster.waitFor("graftlet to start", listed, { explain: () => agent.log() });
  });
  after(async () => {
    api?.[Symbol.dispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  const create = (name: string) => api.create(graftedNodePath(namespace), fakeMachine(name));
  const list = async () => {
    const { items } = await api.get<{ items: readonly GraftedNode[] }>(graftedNodePath(namespace));
    return new Map(items.map((object) => [object.metadata.name, object]));
  };
  const unready = async () => {
    const objects = await list();
    return names.filter((name) => !isReady(objects.get(name)?.status));
  };
  const explain = async () => `${(await unready()).join()}\n${agent.log().slice(-4_000)}`;
  const isReadyNow = async (name: string) =>
    isReady((await api.get<GraftedNode>(graftedNodePath(namespace, name))).status);
  const versions = async () => JSON.stringify([...(await list())].map(([, { metadata }]) => metadata.resourceVersion));
  const untilSettled = () =>
    cluster.waitFor(
      "the objects to change no more",
      async () => {
        const before = await versions();
        await sleep(settledMs);
        return before === (await versions());
      },
      { timeoutMs: 120_000, explain },
    );
  /** The state that changes if a node is affected: its object, its Node without heartbeats, and its number of starts. */
  const standing = async (among: readonly string[]) => {
    const { items } = await api.get<{ items: readonly Node[] }>("/api/v1/nodes");
    const nodes = new Map(items.map((node) => [node.metadata.name, node]));
    const starts = startsIn(agent.log());
    const objects = await list();
    return among.map((name) => {
      const { metadata, spec } = nodes.get(name) ?? {};
      const version = objects.get(name)?.metadata.resourceVersion;
      return { name, version, uid: metadata?.uid, labels: metadata?.labels, spec, starts: starts.get(name) };
    });
  };

  test("GraftedNodes become Ready Nodes when they are applied at once", async () => {
    const { rss: empty } = await heapOf(agent, report);
    const [cpu, asked, begun] = [cpuSeconds(agent.pid), auditedSoFar(cluster.layout), performance.now()];
    for (let done = 0; done < count; done += parallel)
      await Promise.all(names.slice(done, done + parallel).map(create));
    const applied = performance.now() - begun;
    const allReady = async () => (await unready()).length === 0;
    await cluster.waitFor("objects to be Ready", allReady, { timeoutMs: 600_000, everyMs: 1_000, explain });
    const took = performance.now() - begun;
    const spent = cpuSeconds(agent.pid) - cpu;
    await untilSettled();
    const { own, ofNodes } = requestsIn(cluster, asked);
    const { rss } = await heapOf(agent, report);
    const figures = [
      `applied in ${seconds(applied)}, all Ready after ${seconds(took)}`,
      `${spent.toFixed(1)} s of a processor`,
      `${((rss - empty) / count).toFixed(2)} MiB of resident memory each, beside ${empty.toFixed(0)} MiB`,
      `requests each: ${(own / count).toFixed(1)} of the account, ${(ofNodes / count).toFixed(1)} of the node`,
    ];
    console.log(`${count} objects: ${figures.join("; ")}`);
    assert.deepEqual(new Set((await standing(names)).map(({ starts }) => starts)), new Set([1]));
  });

  test("adding one more GraftedNode changes no other node, and its Node is Ready within seconds", async () => {
    const before = await standing(names);
    const times: number[] = [];
    for (const name of ["edge-more-1", "edge-more-2", "edge-more-3"]) {
      const begun = performance.now();
      await create(name);
      await cluster.waitFor(`${name} to be Ready`, () => isReadyNow(name), { everyMs: 20, explain });
      times.push(performance.now() - begun);
      await untilSettled();
    }
    console.log(`one more object was Ready after ${times.map(seconds).join(", ")}`);
    assert.deepEqual(await standing(names), before);
    assert.ok(Math.min(...times) <= longestMs, times.join());
  });

  test("deleting a GraftedNode changes no other node, and the object is gone within seconds", async () => {
    const [leaving, ...others] = names;
    assert.ok(leaving !== undefined);
    const before = await standing(others);
    const begun = performance.now();
    await api.remove(graftedNodePath(namespace, leaving));
    const isGone = async () => !(await list()).has(leaving);
    await cluster.waitFor("the object to be gone", isGone, { everyMs: 200, explain });
    const took = performance.now() - begun;
    console.log(`a deleted object was gone after ${seconds(took)}`);
    assert.equal(await cluster.get("node", leaving), undefined);
    assert.ok(took < 20_000, seconds(took));
    await sleep(settledMs);
    assert.deepEqual(await standing(others), before);
    assert.equal(await agent.stop(60_000), true);
  });
});

/** How often each node has started. */
function startsIn(log: string): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const line of log.split("\n").filter((each) => each.includes("kubelet API listening"))) {
    const { node } = JSON.parse(line) as { readonly node: string };
    counts.set(node, (counts.get(node) ?? 0) + 1);
  }
  return counts;
}

/** How many requests the account and the nodes have made since then. */
function requestsIn({ layout }: Cluster, from: number): { readonly own: number; readonly ofNodes: number } {
  const begun = deedsOf(layout, from).filter(({ verb, stage }) => stage === "ResponseStarted" || verb !== "watch");
  const by = (isThem: (user: string) => boolean) => begun.filter(({ user }) => isThem(user.username)).length;
  return {
    own: by((user) => user === `system:serviceaccount:${namespace}:${account}`),
    ofNodes: by((user) => user.startsWith("system:node:edge-")),
  };
}

function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(2)} s`;
}
