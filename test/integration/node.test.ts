import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Lease, Node, NodeCondition, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { hugePageBytes, images } from "../harness/pods.ts";
import { particulars } from "../harness/particulars.ts";
import { kubectlTimeout } from "../harness/wait.ts";

describe("registration and status of the Node", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let agent: Agent;

  const start = async (args: readonly string[] = []) => {
    const config = {
      registerWithTaints: [{ key: "example.com/first", value: "one", effect: "NoSchedule" }],
      systemReserved: { cpu: "100m", memory: "64Mi" },
      kubeReserved: { cpu: "50m" },
      evictionHard: { "memory.available": "50Mi", "nodefs.available": "1Gi" },
    };
    agent = await startGraftlet(cluster, { args: ["--node-labels=example.com/zone=a", ...args], config });
  };
  const node = async (): Promise<Node> => {
    const found = await cluster.get<Node>("node", cluster.nodeName);
    assert.ok(found, "the node is there");
    return found;
  };
  const until = (what: string, holds: (node: Node) => boolean, timeoutMs: number) =>
    cluster.waitFor(
      `the node: ${what}`,
      async () => {
        const found = await cluster.get<Node>("node", cluster.nodeName);
        return found && holds(found) && found;
      },
      { timeoutMs, explain: async () => (await cluster.kubectl(["describe", "node", cluster.nodeName])).stdout },
    );
  const condition = (of: Node, type: string): NodeCondition => {
    const found = of.status?.conditions?.find((each) => each.type === type);
    assert.ok(found, `condition ${type} is there`);
    return found;
  };
  const isReady = (of: Node) =>
    of.status?.conditions?.some(({ type, status }) => type === "Ready" && status === "True") ?? false;
  const events = async (): Promise<readonly string[]> => {
    const list = JSON.parse(await cluster.mustKubectl(["get", "events", "-n", "default", "-o", "json"])) as {
      items: CoreEvent[];
    };
    return list.items.filter(({ involvedObject }) => involvedObject.kind === "Node").map(({ reason }) => reason ?? "");
  };

  before(async () => {
    cluster = await startCluster({ name: "node" });
    await start();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("registers with labels, annotation and taints", async () => {
    const { metadata, spec } = await node();
    assert.equal(metadata.labels?.["example.com/zone"], "a");
    assert.equal(metadata.labels?.["kubernetes.io/hostname"], cluster.nodeName);
    assert.equal(metadata.annotations?.["volumes.kubernetes.io/controller-managed-attach-detach"], "true");
    assert.ok(
      spec?.taints?.some(
        ({ key, value, effect }) => key === "example.com/first" && value === "one" && effect === "NoSchedule",
      ),
    );
  });

  test("reports facts and conditions of the target", async () => {
    const { status } = await node();
    const info = status?.nodeInfo;
    const uname = (await cluster.runInside(["uname", "-r"])).stdout.trim();
    assert.equal(info?.kernelVersion, uname);
    assert.match(info?.containerRuntimeVersion ?? "", new RegExp(`^${particulars[cluster.provider].runtimeName}://`));
    assert.match(info?.kubeletVersion ?? "", /^v1\.36\./);
    assert.match(info?.bootID ?? "", /^[0-9a-f-]{36}$/);
    assert.deepEqual(status?.addresses?.[0], { type: "InternalIP", address: cluster.agentAddress });
    assert.equal(status?.daemonEndpoints?.kubeletEndpoint?.Port, 10250);
    assert.deepEqual(
      status?.conditions?.map(({ type, status: value, reason }) => `${type} ${value} ${reason}`),
      [
        ...particulars[cluster.provider].ownConditions,
        "MemoryPressure False KubeletHasSufficientMemory",
        "DiskPressure False KubeletHasNoDiskPressure",
        "PIDPressure False KubeletHasSufficientPID",
        "Ready True KubeletReady",
      ],
    );
  });

  test("reports the target's capacity and allocatable", async () => {
    const found = await node();
    const { status } = found;
    const cores = Number((await cluster.runInside(["nproc", "--all"])).stdout);
    assert.equal(status?.capacity?.["cpu"], String(cores));
    assert.equal(status?.allocatable?.["cpu"], `${cores * 1000 - 150}m`);
    const ki = (list: Readonly<Record<string, string>> | undefined) =>
      Number(/^(\d+)Ki$/.exec(list?.["memory"] ?? "")?.[1]);
    const kept = (64 + 50) * 1024 + hugePageBytes(found) / 1024;
    assert.equal(ki(status?.capacity) - ki(status?.allocatable), kept);
  });

  test("offers pods the capacity that other components add", async () => {
    const patch = JSON.stringify({ status: { capacity: { "example.com/dongle": "4" } } });
    await cluster.mustKubectl(["patch", "node", cluster.nodeName, "--subresource=status", "--patch", patch]);
    await until("to offer it", (found) => found.status?.allocatable?.["example.com/dongle"] === "4", 30_000);
    const container = { name: "main", image: images.busybox, command: ["sleep", "3600"] };
    const spec = {
      containers: [{ ...container, resources: { limits: { "example.com/dongle": "1" } } }],
      tolerations: [{ operator: "Exists" }],
      terminationGracePeriodSeconds: 0,
    };
    await cluster.apply({ apiVersion: "v1", kind: "Pod", metadata: { name: "dongle", namespace: "default" }, spec });
    await cluster.mustKubectl(["wait", "pod/dongle", "--for=condition=Ready", kubectlTimeout(60)], {
      timeoutMs: 70_000,
    });
  });

  test("lists its images, the largest first", async () => {
    const spec = {
      nodeName: cluster.nodeName,
      tolerations: [{ operator: "Exists" }],
      containers: [{ name: "main", image: images.busybox, command: ["sleep", "infinity"] }],
    };
    await cluster.apply({ apiVersion: "v1", kind: "Pod", metadata: { name: "sleeper" }, spec });
    const { status } = await until("to show images", ({ status }) => (status?.images?.length ?? 0) > 1, 60_000);
    const sizes = status?.images?.map(({ sizeBytes }) => sizeBytes ?? 0) ?? [];
    assert.deepEqual(
      sizes,
      sizes.toSorted((a, b) => b - a),
    );
  });

  test("renews a Lease that the Node owns", async () => {
    const lease = async () => {
      const found = JSON.parse(
        await cluster.mustKubectl(["get", "lease", "-n", "kube-node-lease", cluster.nodeName, "-o", "json"]),
      ) as Lease;
      return found;
    };
    const first = await lease();
    assert.equal(first.spec?.holderIdentity, cluster.nodeName);
    assert.equal(first.spec?.leaseDurationSeconds, 40);
    assert.equal(first.metadata.ownerReferences?.[0]?.uid, (await node()).metadata.uid);
    await cluster.waitFor(
      "the lease to be renewed",
      async () => (await lease()).spec?.renewTime !== first.spec?.renewTime,
      { timeoutMs: 30_000 },
    );
  });

  test("emits events about the Node", async () => {
    await cluster.waitFor("the node's events", async () => {
      const reasons = await events();
      return ["Starting", "NodeReady", "NodeHasSufficientMemory"].every((reason) => reasons.includes(reason));
    });
  });

  test("emits an event when the Node is cordoned or uncordoned", async () => {
    const said = (reason: string) =>
      cluster.waitFor(`the event ${reason}`, async () => (await events()).includes(reason));
    await cluster.mustKubectl(["cordon", cluster.nodeName]);
    await said("NodeNotSchedulable");
    await cluster.mustKubectl(["uncordon", cluster.nodeName]);
    await said("NodeSchedulable");
  });

  test("stays Ready across a restart, and does not set the command line's labels and taints again", async () => {
    const readySince = condition(await node(), "Ready").lastTransitionTime;
    await cluster.mustKubectl(["label", "node", cluster.nodeName, "example.com/zone-"]);
    await cluster.mustKubectl(["taint", "node", cluster.nodeName, "example.com/first-"]);
    assert.equal(await agent.stop(), true, "SIGTERM ends it");
    await start();
    await cluster.waitFor("the second Starting event", async () => (await events()).includes("Starting"));
    await new Promise((resolve) => setTimeout(resolve, 6_000));
    const now = await node();
    assert.equal(condition(now, "Ready").lastTransitionTime, readySince, "Ready has not flapped");
    assert.equal(now.metadata.labels?.["example.com/zone"], undefined);
    assert.equal(now.spec?.taints?.some(({ key }) => key === "example.com/first") ?? false, false);
    assert.equal((await events()).includes("NodeNotReady"), false);
  });

  test("registers again within seconds when deleted, and becomes Ready", async () => {
    const { uid } = (await node()).metadata;
    await cluster.mustKubectl(["delete", "node", cluster.nodeName, "--wait=false"]);
    const again = await until(
      "to be registered again and Ready",
      (found) => found.metadata.uid !== uid && isReady(found),
      30_000,
    );
    assert.equal(again.metadata.labels?.["example.com/zone"], "a");
  });

  test("the Node is NotReady with the reason while the runtime is stopped, and Ready when it runs again", async () => {
    await cluster.killRuntime();
    const down = await until("to be NotReady", (found) => !isReady(found), 60_000);
    assert.match(condition(down, "Ready").message ?? "", /container runtime is down/);
    await cluster.startRuntime();
    await until("to be Ready again", isReady, 60_000);
  });

  test("the Node has no ephemeral storage without localStorageCapacityIsolation, and rejects pods that request it", async () => {
    assert.equal(await agent.stop(), true);
    await cluster.mustKubectl(["delete", "node", cluster.nodeName]);
    agent = await startGraftlet(cluster, { config: { localStorageCapacityIsolation: false } });
    const { status } = await until("to be Ready", isReady, 60_000);
    for (const resources of [status?.capacity, status?.allocatable])
      assert.deepEqual([resources?.["memory"] !== undefined, resources?.["ephemeral-storage"]], [true, undefined]);
    const resources = { requests: { "ephemeral-storage": "1Mi" } };
    const containers = [{ name: "main", image: images.busybox, command: ["sleep", "3600"], resources }];
    const spec = { nodeName: cluster.nodeName, containers };
    await cluster.apply([{ apiVersion: "v1", kind: "Pod", metadata: { name: "large" }, spec }]);
    const rejected = await cluster.waitFor("the pod to be rejected", async () => {
      const pod = await cluster.get<Pod>("pod", "large");
      return pod?.status?.phase === "Failed" && pod;
    });
    assert.equal(rejected.status?.reason, "OutOfephemeral-storage");
  });
});
