import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Pod } from "../../src/objects.ts";
import { type Agent, type AgentOptions, rareRounds, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { hangAt } from "../harness/hung-mount.ts";
import { mount } from "../harness/manifests.ts";
import { isCgroupV2 } from "../harness/pod-machine.ts";
import { condition, openPods, type Pods, shell, type SpecDraft } from "../harness/pods.ts";
import {
  clear,
  keepingFiles,
  keepingMemory,
  keepingProcesses,
  pidsToLeave,
  processIdsTurn,
  scarceMemory,
  smallRootDir,
  tolerant,
  tooManyProcesses,
  untilCondition,
  untilEvicted,
  untouched,
} from "../harness/pressure.ts";
import { runtimeDaemons } from "../harness/runtime-daemon.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";

describe("node-pressure eviction", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent | undefined;
  let processIds: AsyncDisposable | undefined;

  const restart = async (config: object, env: AgentOptions["env"] = {}): Promise<Agent> => {
    if (agent) assert.equal(await agent.stop(), true);
    agent = await startGraftlet(cluster, { config: { evictionPressureTransitionPeriod: "5s", ...config }, env });
    return agent;
  };
  const nodeEvents = async (): Promise<readonly string[]> => {
    const of = `involvedObject.kind=Node,involvedObject.name=${cluster.nodeName}`;
    const { items } = await pods.api.get<{ items: CoreEvent[] }>(`/api/v1/events?fieldSelector=${of}`);
    return items.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
  };
  const run = async (all: Readonly<Record<string, SpecDraft>>) => {
    for (const [name, spec] of Object.entries(all)) await pods.create(name, spec);
    await Promise.all(Object.keys(all).map(pods.ready));
  };

  before(async () => {
    cluster = await startCluster({ name: "eviction" });
    pods = await openPods(cluster);
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await processIds?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("evicts the pod that exceeds its memory request most, and rejects new BestEffort pods", async () => {
    await restart({});
    await restart(await scarceMemory(cluster, 400));
    await run({
      guaranteed: keepingMemory(80, { limits: "120Mi" }),
      burstable: keepingMemory(60, { requests: "100Mi" }),
      little: keepingMemory(10),
    });
    await pods.create("much", { ...keepingMemory(160), terminationGracePeriodSeconds: 60 });
    const { status, metadata } = await untilEvicted(pods, "much");
    assert.equal(status?.reason, "Evicted");
    assert.match(
      status?.message ?? "",
      /^The node was low on resource: memory\. Threshold quantity: 100Mi, available: \d+\w*\. Container main was using \d+\w*, request is 0, has larger consumption of memory\. $/,
    );
    const pod = pods.history("much").at(-1) ?? assert.fail();
    const disrupted = condition(pod, "DisruptionTarget");
    assert.deepEqual([disrupted?.reason, disrupted?.message], ["TerminationByKubelet", status?.message]);
    const event = await pods.event("much", "Evicted");
    assert.equal(event.message, status?.message);
    const { annotations } = event.metadata;
    assert.equal(annotations?.["offending_containers"], "main");
    assert.equal(annotations?.["starved_resource"], "memory");
    assert.ok((await nodeEvents()).includes("Warning EvictionThresholdMet Attempting to reclaim memory"));
    assert.ok(metadata.uid);
    const others = ["guaranteed", "burstable", "little"];
    await untouched(pods, others);
    await untilCondition(cluster, "MemoryPressure", "False");
    await untouched(pods, others);
    await clear(pods, [...others, "much"]);
  });

  test("evicts a pod on the kernel's memory notification, before the next interval", async (t) => {
    if (isCgroupV2(cluster)) return t.skip("cgroup version 2 has no events for thresholds of memory");
    const config = { kernelMemcgNotification: true, ...(await scarceMemory(cluster, 300)) };
    // By the time that a pod runs the limit of all pods is in force: the next agent's first round sees it.
    await restart(config);
    await run({ modest: keepingMemory(40, { requests: "100Mi" }) });
    const own = await restart(config, rareRounds);
    await pods.ready("modest");
    await pods.create("sudden", keepingMemory(190));
    const { status } = await untilEvicted(pods, "sudden");
    assert.match(status?.message ?? "", /^The node was low on resource: memory\. /);
    assert.match(own.log(), /eviction manager: hard allocatable memory eviction threshold crossed/);
    await untouched(pods, ["modest"]);
    await clear(pods, ["modest", "sudden"]);
  });

  test("a hanging file system affects only its own statistics: memory is still monitored", async (t) => {
    if (runtimeDaemons[cluster.provider].role !== "containerd")
      return t.skip("a Docker Engine's images hold up all of it");
    const own = await restart(await scarceMemory(cluster, 400));
    const filling = "dd if=/dev/zero of=/v/it bs=1M count=350 2>/dev/null; exec sleep infinity";
    await run({
      modest: keepingMemory(40, { requests: "100Mi" }),
      growing: {
        volumes: [{ name: "v", emptyDir: { medium: "Memory" } }],
        containers: [shell(`until [ -e /tmp/go ]; do sleep 0.2; done; ${filling}`, { volumeMounts: [mount("v")] })],
      },
    });
    const images = join(
      runtimeDaemons[cluster.provider].store(cluster.layout),
      "io.containerd.snapshotter.v1.overlayfs",
    );
    {
      await using _hung = await hangAt(cluster, images);
      const complaint = /eviction manager: cannot read imagefs; ignoring its thresholds until it can be read/;
      await cluster.waitFor("the log to name it", () => complaint.test(own.log()), { timeoutMs: 40_000 });
      await cluster.mustKubectl(["exec", "growing", "--", "touch", "/tmp/go"]);
      const { status } = await untilEvicted(pods, "growing");
      assert.match(status?.message ?? "", /^The node was low on resource: memory\. /);
      // Looks that wait must not become more and more.
      await new Promise((resolve) => setTimeout(resolve, 25_000));
      await cluster.mustKubectl(["exec", "modest", "--", "true"]);
      await untouched(pods, ["modest"]);
    }
    await pods.create("later", { ...tolerant, containers: [shell("exec sleep infinity")] });
    await pods.ready("later");
    await clear(pods, ["modest", "growing", "later"]);
  });

  test("evicts the pod whose files fill the node's file system, and frees its space", async () => {
    if (agent) assert.equal(await agent.stop(), true);
    agent = undefined;
    const { kubeletRoot } = cluster.layout;
    await smallRootDir(cluster, 512);
    await restart({ evictionHard: { "nodefs.available": "30%", "nodefs.inodesFree": "5%" } });
    await run({ modest: keepingFiles(30), entitled: keepingFiles(150, "200Mi") });
    await pods.create("hoarder", keepingFiles(250));
    const { status } = await untilEvicted(pods, "hoarder");
    assert.match(
      status?.message ?? "",
      /^The node was low on resource: ephemeral-storage\. Threshold quantity: \d+, available: \d+\w*\. /,
    );
    await untouched(pods, ["modest", "entitled"]);
    await untilCondition(cluster, "DiskPressure", "False");
    await untouched(pods, ["modest", "entitled"]);

    // Somebody else's files: nothing can be freed but pods, and those by the kubelet's ranking, one after the other.
    await cluster.mustRunInside(["fallocate", "-l", "250M", `${kubeletRoot}/foreign`]);
    await untilEvicted(pods, "modest");
    await untilEvicted(pods, "entitled");
    const ended = ["modest", "entitled"].map((name) => pods.history(name).find(isFailed)?.metadata.resourceVersion);
    assert.ok(Number(ended[0]) < Number(ended[1]), "what is within its request goes last");
    await pods.create("late", { ...keepingFiles(1), nodeName: cluster.nodeName });
    const late = await pods.until("late", "to be refused", isFailed);
    assert.equal(late.status?.message, "Pod was rejected: The node had condition: [DiskPressure]. ");
    await cluster.runInside(["rm", `${kubeletRoot}/foreign`]);
    await untilCondition(cluster, "DiskPressure", "False");
    await clear(pods, ["hoarder", "modest", "entitled", "late"]);
  });

  test("evicts the pod with the most process IDs", async () => {
    processIds ??= await processIdsTurn();
    await restart({ evictionHard: { "pid.available": await pidsToLeave(cluster) } });
    await run({ single: keepingProcesses(1) });
    await pods.create("many", keepingProcesses(tooManyProcesses));
    const { status } = await untilEvicted(pods, "many");
    assert.match(
      status?.message ?? "",
      /^The node was low on resource: pids\. Threshold quantity: \d+, available: \d+k?\. $/,
    );
    await untouched(pods, ["single"]);
    await untilCondition(cluster, "PIDPressure", "False");
    await untouched(pods, ["single"]);
  });

  test("counts each eviction by its signal", async () => {
    const text = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`]);
    const { samples = [] } = parseExposition(text).get("kubelet_evictions") ?? {};
    const counted = Object.fromEntries(samples.map(({ labels, value }) => [labels["eviction_signal"], value]));
    assert.deepEqual(counted, { "pid.available": 1 });
    assert.ok(parseExposition(text).has("kubelet_eviction_stats_age_seconds"));
  });
});

function isFailed({ status }: Pod): boolean {
  return status?.phase === "Failed";
}
