import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Lease, Node, Pod } from "../../src/objects.ts";
import { quantityValue } from "../../src/pod/quantity.ts";
import { type Agent, type AgentOptions, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { particulars } from "../harness/particulars.ts";
import { hugePageBytes, images } from "../harness/pods.ts";

const everywhere = [{ operator: "Exists" }];
/** Everything is short, and no pod is evicted for it. */
const everythingShort = softly({
  "memory.available": "99.99%",
  "nodefs.available": "99.99%",
  "pid.available": "99.99%",
});

function softly(evictionSoft: Readonly<Record<string, string>>): Record<string, unknown> {
  const grace = Object.keys(evictionSoft).map((signal) => [signal, "1h"]);
  return { evictionSoft, evictionSoftGracePeriod: Object.fromEntries(grace) };
}

describe("node conditions and the cluster's reaction to them", { timeout: 900_000 }, () => {
  let cluster: Cluster;
  let agent: Agent | undefined;

  const restart = async (options: AgentOptions) => {
    if (agent) assert.equal(await agent.stop(), true);
    agent = await startGraftlet(cluster, options);
  };
  const node = async (): Promise<Node> =>
    (await cluster.get<Node>("node", cluster.nodeName)) ?? assert.fail("the node is not there");
  const until = (what: string, holds: (node: Node) => boolean, timeoutMs = 60_000) =>
    cluster.waitFor(
      `the node ${what}`,
      async () => {
        const found = await cluster.get<Node>("node", cluster.nodeName);
        return found && holds(found) && found;
      },
      { timeoutMs, explain: async () => (await cluster.kubectl(["describe", "node", cluster.nodeName])).stdout },
    );
  const has = (of: Node, line: string) =>
    of.status?.conditions?.some(({ type, status, reason }) => `${type} ${status} ${reason}` === line) ?? false;
  const sleeper = (name: string, more: object = {}) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name },
    spec: {
      nodeName: cluster.nodeName,
      tolerations: everywhere,
      terminationGracePeriodSeconds: 1,
      containers: [{ name: "c", image: images.busybox, command: ["sleep", "3600"] }],
      ...more,
    },
  });
  const untilRunning = (name: string) =>
    cluster.waitFor(
      `pod ${name} to run`,
      async () => {
        const pod = await cluster.get<Pod>("pod", name);
        return pod?.status?.phase === "Running" && pod;
      },
      { timeoutMs: 60_000, explain: async () => (await cluster.kubectl(["describe", "pod", name])).stdout },
    );
  const eventsOf = async (kind: string, name: string) => {
    const { items } = JSON.parse(
      await cluster.mustKubectl([
        "get",
        "events",
        "--all-namespaces",
        "-o",
        "json",
        `--field-selector=involvedObject.kind=${kind},involvedObject.name=${name}`,
      ]),
    ) as { items: CoreEvent[] };
    return items.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
  };
  const untilEvents = (kind: string, name: string, wanted: readonly string[]) =>
    cluster.waitFor(
      `events ${wanted.join(", ")}`,
      async () => {
        const lines = await eventsOf(kind, name);
        return wanted.every((each) => lines.some((line) => line.includes(each)));
      },
      { explain: async () => (await eventsOf(kind, name)).join("\n") },
    );
  const untilRefused = async (name: string, condition: string) => {
    const message = `The node had condition: [${condition}]. `;
    const { status } = await cluster.waitFor(
      `pod ${name} to be refused`,
      async () => {
        const pod = await cluster.get<Pod>("pod", name);
        return pod?.status?.phase === "Failed" && pod;
      },
      { timeoutMs: 60_000, explain: async () => (await cluster.kubectl(["describe", "pod", name])).stdout },
    );
    assert.deepEqual([status?.reason, status?.message], ["Evicted", `Pod was rejected: ${message}`]);
    await untilEvents("Pod", name, [`Warning Evicted ${message}`]);
  };
  const containersOf = async (names: readonly string[]) =>
    Promise.all(names.map(async (name) => (await cluster.get<Pod>("pod", name))?.status?.containerStatuses?.[0]));
  const burstable = {
    containers: [
      { name: "c", image: images.busybox, command: ["sleep", "3600"], resources: { requests: { cpu: "1m" } } },
    ],
  };
  const flip = (reason: string) => `Normal ${reason} Node ${cluster.nodeName} status is now: ${reason}`;

  before(async () => {
    cluster = await startCluster({ name: "node-conditions" });
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("rejects BestEffort pods without a toleration under memory pressure; others keep running", async () => {
    await restart({ config: { providerID: "lab:///one", ...softly({ "memory.available": "99.99%" }) } });
    await until("to be short of memory", (found) => has(found, "MemoryPressure True KubeletHasInsufficientMemory"));
    await cluster.apply([
      sleeper("unbearing", { tolerations: [] }),
      sleeper("tolerant"),
      sleeper("burstable", burstable),
      sleeper("critical", { priorityClassName: "system-node-critical", tolerations: [] }),
    ]);
    await untilRefused("unbearing", "MemoryPressure");
    for (const name of ["tolerant", "burstable", "critical"]) await untilRunning(name);
  });

  test("reports memory, disk and PID pressure with conditions, events and the cluster's taints", async () => {
    await restart({
      config: { providerID: "lab:///one", evictionHard: { "memory.available": "1Gi" }, ...everythingShort },
    });
    const pressed = await until("to be under pressure", (found) =>
      [
        "MemoryPressure True KubeletHasInsufficientMemory",
        "DiskPressure True KubeletHasDiskPressure",
        "PIDPressure True KubeletHasInsufficientPID",
        "Ready True KubeletReady",
      ].every((line) => has(found, line)),
    );
    assert.equal(pressed.spec?.providerID, "lab:///one");
    const { capacity, allocatable } = pressed.status ?? {};
    const all = quantityValue(capacity?.["memory"] ?? "");
    const left = all - 2 ** 30 - hugePageBytes(pressed);
    assert.equal(quantityValue(allocatable?.["memory"] ?? ""), left, "what eviction keeps free is not for pods");
    assert.deepEqual(pressed.status?.addresses, [
      { type: "InternalIP", address: cluster.agentAddress },
      { type: "Hostname", address: cluster.nodeName },
    ]);
    await untilEvents(
      "Node",
      cluster.nodeName,
      ["NodeHasInsufficientMemory", "NodeHasDiskPressure", "NodeHasInsufficientPID", "NodeReady"].map(flip),
    );
    const pressures = ["memory", "disk", "pid"].map((name) => `node.kubernetes.io/${name}-pressure`);
    await until("to be tainted", ({ spec }) =>
      pressures.every((key) => spec?.taints?.some((taint) => taint.key === key)),
    );
  });

  test("rejects all but critical new pods under every pressure; running ones keep running", async () => {
    const names = ["tolerant", "burstable", "critical"];
    const before = await containersOf(names);
    await cluster.apply([
      sleeper("refused", burstable),
      sleeper("late-critical", { priorityClassName: "system-node-critical" }),
    ]);
    await untilRefused("refused", "MemoryPressure DiskPressure PIDPressure");
    await untilRunning("late-critical");
    const writtenAt = (of: Node) =>
      of.status?.conditions?.find(({ type }) => type === "DiskPressure")?.lastHeartbeatTime;
    const last = writtenAt(await node());
    await restart({ config: everythingShort });
    await until("to have looked again", (found) => writtenAt(found) !== last);
    await cluster.apply(sleeper("refused-again"));
    await untilRefused("refused-again", "MemoryPressure DiskPressure PIDPressure");
    assert.deepEqual(await containersOf(names), before);
    await cluster.mustKubectl(["delete", "pod", "--all"]);
  });

  test("clears the conditions once thresholds are normal again", async () => {
    await restart({});
    await until("to be fine", (found) =>
      [
        "MemoryPressure False KubeletHasSufficientMemory",
        "DiskPressure False KubeletHasNoDiskPressure",
        "PIDPressure False KubeletHasSufficientPID",
      ].every((line) => has(found, line)),
    );
    await untilEvents(
      "Node",
      cluster.nodeName,
      ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"].map(flip),
    );
    await until("to lose its taints", ({ spec }) => !spec?.taints?.length);
  });

  test("at rest, renews the Lease every ten seconds and writes nothing else", async () => {
    const lease = async (): Promise<string> =>
      (
        JSON.parse(
          await cluster.mustKubectl(["get", "lease", "-n", "kube-node-lease", cluster.nodeName, "-o", "json"]),
        ) as Lease
      ).spec?.renewTime ?? "";
    const nextRenewal = (last: string) =>
      cluster.waitFor(
        "the lease to be renewed",
        async () => {
          const now = await lease();
          return now !== last && now;
        },
        { timeoutMs: 30_000 },
      );
    const quiet = await cluster.waitFor(
      "a node that is not written between three renewals",
      async () => {
        const { resourceVersion } = (await node()).metadata;
        const first = await nextRenewal(await lease());
        const second = await nextRenewal(first);
        const third = await nextRenewal(second);
        return (await node()).metadata.resourceVersion === resourceVersion && [first, second, third];
      },
      { timeoutMs: 120_000 },
    );
    const times = quiet.map((text) => Date.parse(text));
    for (const pause of [1, 2].map((index) => (times[index] ?? 0) - (times[index - 1] ?? 0)))
      assert.ok(pause >= 9_500 && pause < 20_000, `${pause} ms between renewals`);
  });

  test("without a pod network, the Node is NotReady with a reason; host-network pods run, others wait until it recovers", async () => {
    const restore = await particulars[cluster.provider].loseNetwork(cluster);
    await cluster.apply(sleeper("notices"));
    const down = await until("to be NotReady", (found) => has(found, "Ready False KubeletNotReady"));
    assert.match(
      down.status?.conditions?.find(({ type }) => type === "Ready")?.message ?? "",
      /container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:/,
    );
    await cluster.apply([sleeper("waits"), sleeper("on-host", { hostNetwork: true })]);
    await untilRunning("on-host");
    await untilEvents("Pod", "waits", [
      "Warning NetworkNotReady network is not ready: container runtime network not ready: NetworkReady=false",
    ]);
    assert.equal((await cluster.get<Pod>("pod", "waits"))?.status?.phase, "Pending");
    await restore();
    await until("to be Ready again", (found) => has(found, "Ready True KubeletReady"));
    await untilRunning("waits");
    await untilRunning("notices");
    await untilEvents("Node", cluster.nodeName, ["NodeNotReady", "NodeReady"].map(flip));
  });

  test("registers a deleted Node again within seconds, without affecting its pods", async () => {
    const pods = async () =>
      Promise.all(
        ["waits", "on-host"].map(async (name) => {
          const pod = await cluster.get<Pod>("pod", name);
          return {
            uid: pod?.metadata.uid,
            containers: pod?.status?.containerStatuses?.map(({ containerID, restartCount, ready }) => ({
              containerID,
              restartCount,
              ready,
            })),
          };
        }),
      );
    const untouched = await pods();
    const { uid } = (await node()).metadata;
    await cluster.mustKubectl(["delete", "node", cluster.nodeName, "--wait=false"]);
    await until(
      "to be Ready under a new UID",
      (found) => found.metadata.uid !== uid && has(found, "Ready True KubeletReady"),
      30_000,
    );
    assert.deepEqual(await pods(), untouched);
    await cluster.waitFor(
      "a lease of the new node",
      async () => {
        const lease = JSON.parse(
          await cluster.mustKubectl(["get", "lease", "-n", "kube-node-lease", cluster.nodeName, "-o", "json"]),
        ) as Lease;
        return lease.metadata.ownerReferences?.[0]?.uid === (await node()).metadata.uid;
      },
      { timeoutMs: 60_000 },
    );
    assert.deepEqual(await pods(), untouched);
    await cluster.mustKubectl(["delete", "pod", "--all"]);
  });

  test("--register-node=false creates no Node, and keeps a manual one up to date", async () => {
    assert.equal(await agent?.stop(), true);
    await cluster.mustKubectl(["delete", "node", cluster.nodeName]);
    const began = agent?.log().length ?? 0;
    await restart({ untilReady: false, args: ["--register-node=false", "--node-labels=example.com/zone=a"] });
    await cluster.waitFor("graftlet to have looked at its runtime", () =>
      agent?.log().slice(began).includes("healthz listening"),
    );
    const labels = { "kubernetes.io/arch": "wrong", "example.com/mine": "yes" };
    await cluster.mustKubectl(["create", "-f", "-"], {
      stdin: JSON.stringify({ apiVersion: "v1", kind: "Node", metadata: { name: cluster.nodeName, labels } }),
    });
    const kept = await until("to be Ready", (found) => has(found, "Ready True KubeletReady"));
    // The node controller copies labels to their older names.
    const own = Object.entries(kept.metadata.labels ?? {}).filter(([name]) => !name.startsWith("beta."));
    const { architecture, operatingSystem } =
      kept.status?.nodeInfo ?? assert.fail("the node says nothing of its machine");
    assert.deepEqual(Object.fromEntries(own), {
      "example.com/mine": "yes",
      // A kubelet sets these two with each status.
      "kubernetes.io/arch": architecture,
      "kubernetes.io/os": operatingSystem,
    });
    assert.ok(kept.status?.capacity?.["memory"]);
  });

  test("adopts an existing Node: corrects default labels and the annotation, and keeps the rest", async () => {
    const { uid } = (await node()).metadata;
    await restart({ args: ["--node-labels=example.com/zone=a"] });
    const taken = await until(
      "to have its labels",
      ({ metadata }) => metadata.labels?.["kubernetes.io/hostname"] !== undefined,
    );
    assert.equal(taken.metadata.uid, uid);
    assert.equal(taken.metadata.labels?.["kubernetes.io/arch"], taken.status?.nodeInfo?.architecture);
    assert.equal(taken.metadata.labels?.["kubernetes.io/hostname"], cluster.nodeName);
    assert.equal(taken.metadata.labels?.["example.com/mine"], "yes");
    assert.equal(taken.metadata.labels?.["example.com/zone"], undefined);
    assert.equal(taken.metadata.annotations?.["volumes.kubernetes.io/controller-managed-attach-detach"], "true");
  });
});
