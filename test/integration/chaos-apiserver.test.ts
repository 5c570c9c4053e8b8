import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Lease, Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type ApiProxy, type Fault, startApiProxy } from "../harness/api-proxy.ts";
import { certificatesIn } from "../harness/certificates.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type Invariants, createInvariants } from "../harness/invariants.ts";
import { askKubelet } from "../harness/kubelet-api.ts";
import { openPods, type Pods, shell, statusOf } from "../harness/pods.ts";
import { signalProcess } from "../harness/processes.ts";
import { readState } from "../harness/state.ts";

/** Of a pod that the cluster does not evict, however long its node is not ready. */
const tolerations = [{ operator: "Exists" }];
const named = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, index) => `${prefix}-${index}`);

// The API server itself is well; what stands between it and the node is not.
describe("a faulty API server", { timeout: 600_000 }, () => {
  const steady = named("steady", 8);
  const probed = named("probed", 4);
  const crashing = named("crashing", 4);
  let cluster: Cluster;
  let proxy: ApiProxy;
  let agent: Agent;
  let pods: Pods;
  let invariants: Invariants;

  before(async () => {
    cluster = await startCluster({ name: "chaos-apiserver" });
    proxy = await startApiProxy(cluster);
    invariants = createInvariants(cluster);
    agent = await startGraftlet(cluster, { kubeconfig: proxy.kubeconfig, args: ["-v=4"] });
    pods = await openPods(cluster);
    // It would call the node not ready, by a Lease that does not come through, and evict what runs there.
    const nodeController = readState(cluster.layout)?.daemons["kube-controller-manager"];
    const readinessProbe = { exec: { command: ["true"] }, periodSeconds: 1, timeoutSeconds: 20 };
    await Promise.all([
      ...steady.map((name) => pods.create(name, { tolerations })),
      ...probed.map((name) => pods.create(name, { tolerations, containers: [{ readinessProbe }] })),
      ...crashing.map((name) => pods.create(name, { tolerations, containers: [shell("sleep 1; exit 3")] })),
    ]);
    await Promise.all([...steady, ...probed].map((name) => pods.ready(name)));
    assert.ok(nodeController && signalProcess(nodeController, "SIGSTOP"));
  });
  after(async () => {
    await invariants?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  /** The scheduler does not place pods on a node that it calls not ready: these come by their nodeName. */
  const create = (name: string) => pods.create(name, { tolerations, nodeName: cluster.nodeName });
  const running = (name: string, timeoutMs: number) =>
    pods.until(name, "to run", ({ status }) => status?.phase === "Running", timeoutMs);
  /** How many writes a second there were in the busiest three: on a busy machine those of one arrive in the next. */
  const busiest = async (): Promise<{ readonly rate: number; readonly total: number; readonly what: string }> => {
    const writes = await proxy.writes();
    const most = writes
      .map(({ at: from }) => writes.filter(({ at }) => at >= from && at < from + 3_000))
      .reduce((busy, some) => (some.length > busy.length ? some : busy), []);
    const what = most.map(({ method, path }) => `${method} ${path}`).join("\n");
    return { rate: most.length / 3, total: writes.length, what };
  };
  const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
  /** How long a pod takes here and now where nothing is wrong, milliseconds. */
  const usualMs = async (name: string): Promise<number> => {
    const since = performance.now();
    await create(name);
    await running(name, 60_000);
    return performance.now() - since;
  };
  /** Ten seconds, on a machine that starts a pod in two. */
  const soon = (usual: number) => Math.max(10_000, 5 * usual);

  const faults: Readonly<Record<string, Fault>> = {
    "429 with Retry-After": { status: 429, retryAfter: 1 },
    "429 without Retry-After": { status: 429 },
    "500": { status: 500 },
    "410 for lists and watches": { status: 410, only: "reads" },
    "truncated JSON": { half: true },
  };
  for (const [what, fault] of Object.entries(faults))
    test(`on ${what}, causes no request storm, loses no pod, and later reports what happened meanwhile`, async (t) => {
      const standing = await invariants.standing(...steady, ...probed);
      const name = `comes-${what.replaceAll(/[^a-z0-9]+/gi, "-").toLowerCase()}`;
      const leaver = `leaves-${name}`;
      const usual = await usualMs(leaver);
      await proxy.writes();
      await proxy.answer(fault);
      try {
        await cluster.waitFor("a write to be answered so", async () => (await proxy.writes()).length > 0);
        // Begun before anybody was told of the fault, others may end in its first second.
        await sleep(1_500);
        await proxy.writes();
        await create(name);
        await pods.remove(leaver);
        await sleep(9_000);
        const { rate, total, what: most } = await busiest();
        t.diagnostic(`${total} writes in 9 s, ${rate.toFixed(1)} a second in the busiest three`);
        if (fault.only === undefined) assert.ok(rate <= 5, `${rate} writes a second:\n${most}`);
      } finally {
        await proxy.answer(undefined);
      }
      const since = performance.now();
      await running(name, 60_000);
      const tookMs = performance.now() - since;
      t.diagnostic(`the new pod ran ${Math.round(tookMs)} ms after; a pod takes ${Math.round(usual)} ms here`);
      assert.ok(tookMs <= soon(usual), `${tookMs} ms, where a pod takes ${usual} ms`);
      await cluster.mustKubectl(["wait", "--for=delete", `pod/${leaver}`, "--timeout=60s"]);
      await invariants.hold(standing);
    });

  test("replaces dead connections within 30 s", async (t) => {
    const standing = await invariants.standing(...steady, ...probed);
    await proxy.swallow();
    const since = performance.now();
    await create("unheard");
    await running("unheard", 60_000);
    const tookMs = performance.now() - since;
    t.diagnostic(`the new pod ran after ${Math.round(tookMs)} ms`);
    assert.ok(tookMs <= 30_000, `${tookMs} ms`);
    await invariants.hold(standing);
  });

  test("the node stays usable during a minute without the API server, and starts new pods within ten seconds afterwards", async (t) => {
    const standing = await invariants.standing(...steady, ...probed);
    const usual = await usualMs("usual");
    await proxy.close();
    const since = performance.now();
    const comers = named("late", 3);
    await Promise.all(comers.map(create));
    await pods.remove("unheard");
    await sleep(60_000 - (performance.now() - since));
    await proxy.open();
    const opened = performance.now();
    await Promise.all(comers.map((name) => running(name, 60_000)));
    const tookMs = performance.now() - opened;
    t.diagnostic(`the new pods ran after ${Math.round(tookMs)} ms; a pod takes ${Math.round(usual)} ms here`);
    assert.ok(tookMs <= soon(usual), `${tookMs} ms, where a pod takes ${usual} ms`);
    const lease = () => cluster.get<Lease>("lease", cluster.nodeName, "kube-node-lease");
    const renewed = Date.parse((await lease())?.spec?.renewTime ?? "");
    await cluster.waitFor(
      "the lease to be renewed",
      async () => Date.parse((await lease())?.spec?.renewTime ?? "") > renewed,
    );
    await cluster.mustKubectl(["wait", "--for=delete", "pod/unheard", "--timeout=60s"]);
    await invariants.hold(standing);
    for (const name of [...steady, ...probed]) {
      const flaps = pods.history(name).filter((pod) => isUnreadyAfterReady(pods.history(name), pod));
      assert.deepEqual(flaps, [], `${name} was not ready for a while`);
    }
    for (const name of crashing) await pods.until(name, "to be told", (pod) => (statusOf(pod)?.restartCount ?? 0) > 1);
    const node = await cluster.get<Node>("node", cluster.nodeName);
    assert.ok(node?.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True"));
  });

  test("after a restart the node is not ready until it knows its pods, and rejects none of them", async () => {
    const [name = ""] = steady;
    const certificate = certificatesIn(cluster.layout.pki).apiServerKubeletClient;
    const logs = () => askKubelet(cluster, `/containerLogs/default/${name}/main`, { certificate });
    const ready = async () =>
      (await cluster.runInside(["curl", "--silent", "--max-time", "5", "http://127.0.0.1:10248/readyz"])).stdout;
    assert.equal(await ready(), "ok");
    await agent.stop();
    await proxy.answer({ status: 500, only: "pods" });
    agent = await startGraftlet(cluster, { kubeconfig: proxy.kubeconfig, args: ["-v=4"] });
    // The Node is still Ready from before, so the program may not have opened its ports yet.
    const answer = await cluster.waitFor("/readyz to answer", async () => (await ready()) || undefined);
    assert.match(answer, /nodes failed/);
    let answered: number | undefined;
    const asked = logs().then(({ status }) => (answered = status));
    await sleep(1_500);
    assert.equal(answered, undefined, "asked for a pod that is not known yet");
    await proxy.answer(undefined);
    assert.equal(await asked, 200);
    await cluster.waitFor("the process to be ready", async () => (await ready()) === "ok");
  });
});

function isUnreadyAfterReady(history: readonly Pod[], pod: Pod): boolean {
  const first = history.findIndex((each) => statusOf(each)?.ready);
  return history.indexOf(pod) > first && !statusOf(pod)?.ready;
}
