import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type GraftedNode, graftedNodePath, isReadyWithOwner } from "../../src/fleet/grafted-node.ts";
import { type Api, openApi } from "../harness/api.ts";
import { auditedSoFar, deedsOf } from "../harness/audit.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import {
  createFakePool,
  fakeMachine,
  type FakeReplica,
  fleetRelease,
  startFakeReplicas,
} from "../harness/fake-fleet.ts";
import { heapOf, heapReporting } from "../harness/heap.ts";
import type { BenchLab } from "./bench-lab.ts";
import { percentile } from "./statistics.ts";
import { cpuSeconds } from "./usage.ts";

/** The column of the table. */
export const sharedByThree = "three replicas";
const replicaCount = 3;
const { namespace } = fleetRelease;
const settleMs = 60_000;
const watchedMs = 60_000;
/** Requests that create objects at the same time. */
const parallel = 30;
const podsEach = 10;

/** Three replicas that share GraftedNodes, whose machines are in memory: their start, what they take when idle, how long a machine is not
 *  served when its replica is shut down or killed, and the start of their pods. The pods come last, because what is in memory ends with its
 *  replica: the next one would start them again. */
export async function benchFleet({ ledger, say }: Pick<BenchLab, "ledger" | "say">, count: number): Promise<void> {
  const audited = "system:authenticated";
  await using cluster = await startCluster({ name: "bench", provider: "ssh", audited, say });
  const reportOf = (index: number) => join(cluster.layout.dir, `heap-${index}.json`);
  await using shared = await startFakeReplicas(cluster, replicaCount, (index) => heapReporting(reportOf(index)));
  const { replicas } = shared;
  using api = openApi(cluster.layout);
  const note = (id: string, ...values: readonly number[]) => ledger.note(id, sharedByThree, 1, ...values);
  const memory = async () => {
    const all = await Promise.all(replicas.map(({ agent }, index) => heapOf(agent, reportOf(index + 1))));
    return all.reduce((sum, { rss }) => sum + rss, 0);
  };
  const isStarting = ({ agent }: FakeReplica) => agent.log().includes("graftlet is starting");
  await cluster.waitFor("the replicas to start", () => replicas.every(isStarting));
  await createFakePool(api);
  const empty = await memory();
  const began = performance.now();
  const names = Array.from({ length: count }, (_, index) => `edge-${index + 1}`);
  await inTurns(names, (name) => api.create(graftedNodePath(namespace), fakeMachine(name)));
  await untilServed(api, cluster, replicas, names);
  note("start", (performance.now() - began) / 1_000);
  say(`${count} machines are Ready and left alone`);
  await sleep(settleMs);
  const cpu = () => replicas.reduce((sum, { agent }) => sum + cpuSeconds(agent.pid), 0);
  const [spent, asked] = [cpu(), auditedSoFar(cluster.layout)];
  await sleep(watchedMs);
  note("cpu", ((cpu() - spent) / (watchedMs / 1_000)) * 100);
  note("requests", ownRequests(cluster, asked) / (watchedMs / 1_000));
  const withoutPods = ((await memory()) - empty) / count;
  note("memory-empty", withoutPods);

  const [first, second, third] = replicas;
  if (!first || !second || !third) throw new Error("there are too few replicas");
  say("shutting down a replica");
  const handedOver = await ownedBy(api, first.pod);
  const stopping = Date.now();
  await first.agent.stop(120_000);
  const starts = await untilStarted(cluster, replicas, handedOver, stopping);
  const stops = timesIn([first], "graftlet has stopped", stopping);
  note("planned", ...handedOver.map((name) => (at(starts, name) - at(stops, name)) / 1_000));
  note("planned-all", (Math.max(...starts.values()) - stopping) / 1_000);
  await untilServed(api, cluster, replicas, names);

  say("killing a replica");
  const lost = await ownedBy(api, second.pod);
  const killing = Date.now();
  second.agent.signal("SIGKILL");
  const taken = await untilStarted(cluster, replicas, lost, killing);
  const failOver = lost.map((name) => (at(taken, name) - killing) / 1_000);
  note("failover", ...failOver);
  note("failover-99", percentile(failOver, 99));
  await untilServed(api, cluster, replicas, names);

  say(`creating ${count * podsEach} pods on the machines of the last replica`);
  const last = async () => (await heapOf(third.agent, reportOf(3))).rss;
  const before = await last();
  const podsBegan = performance.now();
  const pods = names.flatMap((name) => Array.from({ length: podsEach }, (_, index) => podOf(name, index)));
  await inTurns(pods, (pod) => api.create(podsPath, pod));
  await untilRunning(api, cluster);
  note("pods", (performance.now() - podsBegan) / 1_000);
  await sleep(settleMs);
  note("memory", withoutPods + ((await last()) - before) / count);
}

/** Does this with each item, as many at a time as requests are sent. */
async function inTurns<T>(items: readonly T[], does: (item: T) => Promise<unknown>): Promise<void> {
  for (let done = 0; done < items.length; done += parallel)
    await Promise.all(items.slice(done, done + parallel).map(does));
}

const podsPath = "/api/v1/namespaces/default/pods";

function podOf(nodeName: string, index: number) {
  const spec = {
    nodeName,
    automountServiceAccountToken: false,
    tolerations: [{ operator: "Exists" }],
    containers: [{ name: "main", image: "busybox" }],
  };
  return { apiVersion: "v1", kind: "Pod", metadata: { name: `${nodeName}-${index}` }, spec };
}

async function untilRunning(api: Api, cluster: Cluster): Promise<void> {
  const others = `${podsPath}?limit=1&fieldSelector=${encodeURIComponent("status.phase!=Running")}`;
  const isOver = async () => (await api.get<{ items: readonly unknown[] }>(others)).items.length === 0;
  await cluster.waitFor("all pods to be Running", isOver, { timeoutMs: 900_000, everyMs: 1_000 });
}

async function listed(api: Api): Promise<readonly GraftedNode[]> {
  return (await api.get<{ items: readonly GraftedNode[] }>(graftedNodePath(namespace))).items;
}

async function ownedBy(api: Api, pod: string): Promise<readonly string[]> {
  const objects = await listed(api);
  return objects.filter(({ status }) => status?.owner?.replica === pod).map(({ metadata: { name } }) => name);
}

/** Waits until all machines are Ready and are served by replicas that run. */
async function untilServed(
  api: Api,
  cluster: Cluster,
  replicas: readonly FakeReplica[],
  names: readonly string[],
): Promise<void> {
  const runs = (replica: string | undefined) => replicas.some(({ pod, agent }) => pod === replica && agent.isRunning());
  const isServed = (object: GraftedNode) => isReadyWithOwner(object) && runs(object.status?.owner?.replica);
  let waiting: readonly GraftedNode[] = [];
  const areServed = async () => {
    const all = await listed(api);
    waiting = all.filter((object) => !isServed(object));
    return all.length === names.length && waiting.length === 0;
  };
  // A list takes the API server a millisecond for each object.
  await cluster.waitFor("all machines to be served", areServed, {
    timeoutMs: 900_000,
    everyMs: Math.max(500, 5 * names.length),
    explain: () =>
      waiting
        .map(({ metadata }) => metadata.name)
        .slice(0, 20)
        .join(),
  });
}

function at(times: ReadonlyMap<string, number>, name: string): number {
  const time = times.get(name);
  if (time === undefined) throw new Error(`no replica has logged about ${name}`);
  return time;
}

/** Waits until replicas have started the nodes of these machines. @returns the times, milliseconds. */
async function untilStarted(
  cluster: Cluster,
  replicas: readonly FakeReplica[],
  names: readonly string[],
  from: number,
): Promise<ReadonlyMap<string, number>> {
  const started = () => timesIn(replicas, "node is registered", from);
  const areAll = () => {
    const times = started();
    return names.every((name) => times.has(name));
  };
  await cluster.waitFor("the nodes to be started by another replica", areAll, { timeoutMs: 300_000, everyMs: 500 });
  const times = started();
  return new Map(names.map((name) => [name, at(times, name)]));
}

/** The last time at which replicas logged this about each node, milliseconds, after `from`. */
function timesIn(replicas: readonly FakeReplica[], text: string, from: number): ReadonlyMap<string, number> {
  const lines = replicas.flatMap(({ agent }) => readFileSync(agent.logFile, "utf8").split("\n"));
  const times = new Map<string, number>();
  for (const line of lines.filter((each) => each.includes(text) && each.startsWith("{"))) {
    const { node, time } = JSON.parse(line) as { readonly node: string; readonly time: string };
    if (Date.parse(time) >= from) times.set(node, Math.max(Date.parse(time), times.get(node) ?? 0));
  }
  return times;
}

/** Number of requests of the account and the nodes since then. */
function ownRequests({ layout }: Cluster, from: number): number {
  const isOurs = (user: string) => user.startsWith("system:node:edge-") || user.includes(`:${namespace}:`);
  const begun = deedsOf(layout, from).filter(({ verb, stage }) => stage === "ResponseStarted" || verb !== "watch");
  return begun.filter(({ user }) => isOurs(user.username)).length;
}
