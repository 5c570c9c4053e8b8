import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { type GraftedNode, graftedNodePath, isReady } from "../../src/fleet/grafted-node.ts";
import type { Node } from "../../src/objects.ts";
import { cpuSeconds } from "../bench/usage.ts";
import type { Agent } from "./agent.ts";
import type { Api } from "./api.ts";
import { auditedSoFar, deedsOf } from "./audit.ts";
import type { Cluster } from "./cluster.ts";
import { fleetRelease } from "./fake-fleet.ts";
import { heapOf } from "./heap.ts";

const { account, namespace } = fleetRelease;
/** Requests that create objects at the same time. */
const parallel = 30;
/** Time without any write before the state is compared, milliseconds. */
const settledMs = 5_000;

/** An object as it is created. */
export interface NewObject {
  readonly metadata: { readonly name: string };
}

/** What a test does with many GraftedNodes of one process, and sees of them. */
export interface FleetSight {
  /** Creates objects at once, and waits until all are Ready and change no more. @returns a sentence of what it took. */
  startAll(objects: readonly NewObject[]): Promise<string>;
  create(object: NewObject): Promise<unknown>;
  /** Waits until a condition of an object has that reason. */
  untilSays(name: string, type: string, reason: string): Promise<void>;
  /** Creates one more. @returns the time until it was Ready, milliseconds. */
  startOne(object: NewObject): Promise<number>;
  /** Deletes one. @returns the time until it was gone, milliseconds. */
  removeOne(name: string): Promise<number>;
  untilSettled(): Promise<void>;
  /** The state that changes if a node is affected: its object, its Node without heartbeats, and its number of starts. */
  standing(
    names: readonly string[],
  ): Promise<readonly { readonly name: string; readonly starts: number | undefined }[]>;
}

export interface FleetSightOptions {
  readonly cluster: Cluster;
  readonly agent: Agent;
  readonly api: Api;
  /** Where the agent, which was started with `heapReporting`, writes its memory. */
  readonly report: string;
}

export function fleetSight({ cluster, agent, api, report }: FleetSightOptions): FleetSight {
  const create = (object: NewObject) => api.create(graftedNodePath(namespace), object);
  const list = async () => {
    const { items } = await api.get<{ items: readonly GraftedNode[] }>(graftedNodePath(namespace));
    return new Map(items.map((object) => [object.metadata.name, object]));
  };
  const unready = async () =>
    [...(await list()).values()].filter(({ status }) => !isReady(status)).map(({ metadata }) => metadata.name);
  const explain = async () => `${(await unready()).join()}\n${agent.log().slice(-4_000)}`;
  const versions = async () => JSON.stringify([...(await list())].map(([, { metadata }]) => metadata.resourceVersion));
  const untilSettled = async () => {
    const isSettled = async () => {
      const before = await versions();
      await sleep(settledMs);
      return before === (await versions());
    };
    await cluster.waitFor("the objects to change no more", isSettled, { timeoutMs: 120_000, explain });
  };
  return {
    create,
    untilSettled,
    async untilSays(name, type, reason) {
      const says = async () =>
        (await list()).get(name)?.status?.conditions?.some((each) => each.type === type && each.reason === reason);
      await cluster.waitFor(`${name} to say ${reason}`, says, { explain });
    },
    async startAll(objects) {
      const count = objects.length;
      const { rss: empty } = await heapOf(agent, report);
      const [cpu, asked, begun] = [cpuSeconds(agent.pid), auditedSoFar(cluster.layout), performance.now()];
      for (let done = 0; done < count; done += parallel)
        await Promise.all(objects.slice(done, done + parallel).map(create));
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
      return `${count} objects: ${figures.join("; ")}`;
    },
    async startOne(object) {
      const { name } = object.metadata;
      const begun = performance.now();
      await create(object);
      const isReadyNow = async () => isReady((await api.get<GraftedNode>(graftedNodePath(namespace, name))).status);
      await cluster.waitFor(`${name} to be Ready`, isReadyNow, { everyMs: 20, explain });
      return performance.now() - begun;
    },
    async removeOne(name) {
      const begun = performance.now();
      await api.remove(graftedNodePath(namespace, name));
      const isGone = async () => !(await list()).has(name);
      await cluster.waitFor("the object to be gone", isGone, { everyMs: 200, explain });
      const took = performance.now() - begun;
      assert.equal(await cluster.get("node", name), undefined);
      return took;
    },
    async standing(names) {
      const { items } = await api.get<{ items: readonly Node[] }>("/api/v1/nodes");
      const nodes = new Map(items.map((node) => [node.metadata.name, node]));
      const starts = startsIn(agent.log());
      const objects = await list();
      return names.map((name) => {
        const { metadata, spec } = nodes.get(name) ?? {};
        const version = objects.get(name)?.metadata.resourceVersion;
        return { name, version, uid: metadata?.uid, labels: metadata?.labels, spec, starts: starts.get(name) };
      });
    },
  };
}

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

/** Milliseconds, as they are printed. */
export function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(2)} s`;
}
