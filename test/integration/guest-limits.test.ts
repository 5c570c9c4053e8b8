import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { weightOf } from "../../src/host/cgroups.ts";
import type { Node, Pod, Resources } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { cgroupValue } from "../harness/pod-machine.ts";
import { type Pods, containerId, firstProcess, openPods, outgrowMemory, shell, statusOf } from "../harness/pods.ts";
import { patience } from "../harness/wait.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";

const Mi = 2 ** 20;

/** Part of `/stats/summary`. */
interface Measured {
  readonly cpu?: { readonly usageCoreNanoSeconds: number; readonly psi?: object };
  readonly memory?: { readonly workingSetBytes: number; readonly psi?: object };
  readonly swap?: { readonly swapUsageBytes: number; readonly swapAvailableBytes?: number };
}
interface Summary {
  readonly node: Measured;
  readonly pods: readonly (Measured & {
    readonly podRef: { readonly name: string };
    readonly containers: Measured[];
  })[];
}

describe("limits on cgroup v2 with systemd", { timeout: patience(300_000) }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent | undefined;

  before(async () => {
    cluster = await startCluster({ name: "guest-limits" });
    pods = await openPods(cluster);
    const { code, stderr } = await cluster.runInside(["sysctl", "-w", "vm.nr_hugepages=8"]);
    assert.equal(code, 0, stderr);
    agent = await startGraftlet(cluster, { config: { podPidsLimit: 200 } });
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  const onDocker = () => cluster.provider === "ssh-docker-guest";
  /** A limit of a pod's container, of the pod (1 level up), or of all pods of its class (2). */
  const limit = (pod: Pod, file: string, levelsUp = 0) =>
    cgroupValue(cluster, firstProcess(cluster, pod), [file], levelsUp);
  const sleeping = (resources: Resources) => ({ containers: [shell("exec sleep 3600", { resources })] });
  const burstable: Resources = {
    requests: { cpu: "200m", memory: "32Mi" },
    limits: { cpu: "400m", memory: "64Mi" },
  };
  const resize = (name: string, spec: object) =>
    pods.api.patch<Pod>(`/api/v1/namespaces/default/pods/${name}/resize`, { spec });

  test("limits CPU, memory, process IDs and huge pages of a pod and its container, without swap", async () => {
    const amounts = { cpu: "100m", memory: "64Mi", "hugepages-2Mi": "4Mi" };
    await pods.create("huge", sleeping({ requests: amounts, limits: amounts }));
    await pods.create("burstable", sleeping(burstable));
    const [huge, other] = [await pods.ready("huge"), await pods.ready("burstable")];
    const { status } = await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
    assert.equal(status?.capacity?.["hugepages-2Mi"], "16Mi");
    // Neither containerd, with its own defaults, nor Docker limits containers themselves.
    assert.equal(limit(huge, "hugetlb.2MB.max", 1), String(4 * Mi));
    assert.equal(limit(other, "hugetlb.2MB.max", 1), "0", "who asks for no huge pages gets none");
    assert.equal(limit(huge, "hugetlb.2MB.max", 2), String(16 * Mi), "all pods together");
    for (const levelsUp of [0, 1]) {
      assert.equal(limit(other, "memory.max", levelsUp), String(64 * Mi));
      assert.equal(limit(other, "cpu.max", levelsUp), "40000 100000");
      assert.equal(limit(other, "cpu.weight", levelsUp), String(weightOf(204)));
    }
    assert.equal(limit(other, "cpu.weight", 2), String(weightOf(204)), "all Burstable pods");
    assert.equal(limit(other, "pids.max", 1), "200");
    // The machine has swap, and a pod uses none of it unless it is told to.
    assert.match((await cluster.runInside(["cat", "/proc/swaps"])).stdout, /partition/);
    for (const pod of [huge, other]) assert.equal(limit(pod, "memory.swap.max"), "0");
    // Docker limits swap only beside memory: there the pod has the limit.
    await pods.create("unbounded", sleeping({}));
    assert.equal(limit(await pods.ready("unbounded"), "memory.swap.max", onDocker() ? 1 : 0), "0");
  });

  test("resizes the cgroups of a container, its pod and its QoS class in place", async () => {
    const before = await pods.ready("burstable");
    const resources = { requests: { cpu: "300m", memory: "48Mi" }, limits: { cpu: "600m", memory: "96Mi" } };
    const pod = await pods.resized(await resize("burstable", { containers: [{ name: "main", resources }] }));
    assert.equal(containerId(pod), containerId(before));
    for (const levelsUp of [0, 1]) {
      assert.equal(limit(pod, "memory.max", levelsUp), String(96 * Mi));
      assert.equal(limit(pod, "cpu.max", levelsUp), "60000 100000");
      assert.equal(limit(pod, "cpu.weight", levelsUp), String(weightOf(307)));
    }
    assert.equal(limit(pod, "cpu.weight", 2), String(weightOf(307)));
    assert.deepEqual(statusOf(pod)?.resources, resources);
  });

  test("limits a pod and its containers by pod-level resources, even after a resize", async () => {
    const whole = (cpu: string, memory: string) => ({ requests: { cpu, memory }, limits: { cpu, memory } });
    await pods.create("whole", { resources: whole("100m", "64Mi"), ...sleeping({}) });
    const before = await pods.ready("whole");
    const limits = (pod: Pod) => [0, 1].map((up) => [limit(pod, "cpu.max", up), limit(pod, "memory.max", up)]);
    const both = (cpu: string, memory: string) => [
      [cpu, memory],
      [cpu, memory],
    ];
    assert.deepEqual(limits(before), both("10000 100000", String(64 * Mi)));
    const pod = await pods.resized(await resize("whole", { resources: whole("200m", "96Mi") }));
    assert.deepEqual(limits(pod), both("20000 100000", String(96 * Mi)));
    assert.equal(containerId(pod), containerId(before));
  });

  test("reports CPU, memory, swap and pressure of each pod in summary and resource metrics", async () => {
    const proxied = (path: string) =>
      cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/${path}`]);
    const { node, pods: measured } = JSON.parse(await proxied("stats/summary")) as Summary;
    assert.ok((node.swap?.swapAvailableBytes ?? 0) > 256 * Mi, JSON.stringify(node.swap));
    const pod = measured.find(({ podRef }) => podRef.name === "burstable");
    for (const [what, one] of [["pod", pod] as const, ["container", pod?.containers[0]] as const]) {
      assert.ok((one?.cpu?.usageCoreNanoSeconds ?? 0) > 0, what);
      const used = one?.memory?.workingSetBytes ?? 0;
      assert.ok(used > 0 && used < 96 * Mi, `${what} uses ${used}`);
      assert.equal(one?.swap?.swapUsageBytes, 0, what);
      assert.ok(one?.cpu?.psi && one.memory?.psi, `${what} has its pressure`);
    }
    const metrics = parseExposition(await proxied("metrics/resource"));
    const sample = (name: string, labels: Readonly<Record<string, string>>) =>
      metrics
        .get(name)
        ?.samples.find((one) => Object.entries(labels).every(([label, value]) => one.labels[label] === value))?.value;
    assert.ok((sample("pod_memory_working_set_bytes", { pod: "burstable" }) ?? 0) > 0);
    assert.equal(sample("pod_swap_usage_bytes", { pod: "burstable" }), 0);
    assert.equal(sample("container_swap_limit_bytes", { pod: "burstable" }), 0);
  });

  test("OOM-kills the whole container; with Docker, only the process", async () => {
    await outgrowMemory(cluster, pods, "group");
    if (onDocker()) assert.equal(limit(await pods.ready("group"), "memory.oom.group"), "0");
  });
});
