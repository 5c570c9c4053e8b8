import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Container, Node, Pod, Resources } from "../../src/objects.ts";
import { quantityMilli } from "../../src/pod/quantity.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { cgroupValue } from "../harness/pod-machine.ts";
import { type ContainerDraft, condition, containerId, firstProcess, shell, statusOf } from "../harness/pods.ts";
import { hasSystemd } from "../harness/runtime-daemon.ts";

let lab: Lab;
let agent: Agent;
before(async () => {
  lab = await startLab("resize");
  agent = lab.agent;
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await lab?.[Symbol.asyncDispose]();
});

const Mi = 2 ** 20;
const has = (cpu: string, memory: string): Resources => ({ requests: { cpu, memory }, limits: { cpu, memory } });

/** Asks for other resources, by container, as `kubectl patch --subresource resize` does. */
async function resize(name: string, resources: Readonly<Record<string, Resources>>, whole?: Resources): Promise<Pod> {
  const containers = Object.entries(resources).map(([container, amounts]) => ({ name: container, resources: amounts }));
  const spec = { ...(containers.length > 0 && { containers }), ...(whole && { resources: whole }) };
  return lab.pods.api.patch<Pod>(`/api/v1/namespaces/default/pods/${name}/resize`, { spec });
}

const cpuLimit = (pod: Pod, container: string, levelsUp = 0) =>
  cgroupValue(lab.cluster, firstProcess(lab.cluster, pod, container), ["cpu.cfs_quota_us", "cpu.max"], levelsUp).split(
    " ",
  )[0];
const memoryLimit = (pod: Pod, container: string, levelsUp = 0) =>
  Number(
    cgroupValue(
      lab.cluster,
      firstProcess(lab.cluster, pod, container),
      ["memory.limit_in_bytes", "memory.max"],
      levelsUp,
    ),
  );

/** What each container, and at last the pod, is limited to: microseconds of CPU in 100 000, and bytes. */
const limitsOf = (pod: Pod, names: readonly string[]) => [
  ...names.map((name) => [cpuLimit(pod, name), memoryLimit(pod, name)]),
  [cpuLimit(pod, names[0] ?? "", 1), memoryLimit(pod, names[0] ?? "", 1)],
];

const shown = (pod: Pod, name: string) => {
  const { resources, allocatedResources, restartCount } = statusOf(pod, name) ?? {};
  return { resources, allocatedResources, restartCount };
};

const sleeper = (name: string, resources: Resources, more: ContainerDraft = {}): ContainerDraft => ({
  ...shell("trap 'exit 0' TERM; while :; do sleep 0.2; done"),
  name,
  resources,
  ...more,
});

/** Thousandths of a CPU that the node has for pods. */
async function allocatableMilli(): Promise<number> {
  const node = await lab.pods.api.get<Node>(`/api/v1/nodes/${lab.cluster.nodeName}`);
  return quantityMilli(node.status?.allocatable?.["cpu"] ?? "0");
}

describe("resize of a running pod", { concurrency: 4 }, () => {
  // What follows wants the room.
  after(async () => {
    const names = ["three", "added", "restarts", "whole", "full"].filter((name) => lab.pods.history(name).length > 0);
    await Promise.all(names.flatMap((name) => [lab.pods.gone(name), lab.pods.remove(name, 0)]));
  });

  test("raises and lowers resources without a restart, as status, events and cgroups show", async () => {
    const { pods } = lab;
    const before = { a: has("100m", "35Mi"), b: has("110m", "37Mi"), c: has("120m", "39Mi") };
    const wish = { a: has("125m", "40Mi"), b: has("85m", "32Mi"), c: has("145m", "44Mi") };
    await pods.create("three", { containers: Object.entries(before).map(([name, amounts]) => sleeper(name, amounts)) });
    const first = await pods.ready("three");
    const names = Object.keys(before);
    const ids = names.map((name) => containerId(first, name));
    assert.deepEqual(limitsOf(first, names).at(-1), ["33000", 111 * Mi]);

    const more = await lab.pods.resized(await resize("three", wish));
    assert.deepEqual(limitsOf(more, names), [
      ["12500", 40 * Mi],
      ["8500", 32 * Mi],
      ["14500", 44 * Mi],
      // systemd takes whole percents.
      [hasSystemd(lab.cluster.provider) ? "36000" : "35500", 116 * Mi],
    ]);
    for (const [name, amounts] of Object.entries(wish))
      assert.deepEqual(shown(more, name), {
        resources: amounts,
        allocatedResources: amounts.requests,
        restartCount: 0,
      });

    const less = await lab.pods.resized(await resize("three", before));
    assert.deepEqual(limitsOf(less, names).at(-1), ["33000", 111 * Mi]);
    assert.deepEqual(
      names.map((name) => [containerId(less, name), shown(less, name).resources]),
      names.map((name, index) => [ids[index], before[name as keyof typeof before]]),
    );
    const told = /^kubelet_runtime_operations_total\{operation_type="update_podsandbox_resources"\} [1-9]/m;
    const metrics = await pods.api.text(`/api/v1/nodes/${lab.cluster.nodeName}/proxy/metrics`);
    assert.equal(told.test(metrics), !lab.cluster.provider.includes("docker"), "the runtime is told, by CRI only");
    await pods.event(
      "three",
      "ResizeStarted",
      /^Pod resize started: \{"containers":\[\{"name":"a",.*"generation":2\}$/,
    );
    await pods.event("three", "ResizeCompleted", /^Pod resize completed: \{.*"generation":2\}$/);
  });

  test("adds limits and requests, and ignores differences too small to apply", async () => {
    const { pods } = lab;
    const only = (requests: Resources["requests"], limits?: Resources["limits"]): Resources => ({
      ...(requests && { requests }),
      ...(limits && { limits }),
    });
    await pods.create("added", {
      containers: [
        sleeper("cpu", only({ cpu: "20m" })),
        sleeper("memory", only({ memory: "35Mi" })),
        sleeper("tiny", only({ cpu: "2m" }, { cpu: "10m" }), { command: ["sleep", "infinity"] }),
      ],
    });
    await pods.ready("added");
    const wish = {
      cpu: only({ cpu: "25m", memory: "8Mi" }, { cpu: "35m" }),
      memory: only({ memory: "30Mi" }, { memory: "50Mi" }),
      tiny: only({ cpu: "1m" }, { cpu: "5m" }),
    };
    const pod = await lab.pods.resized(await resize("added", wish));
    for (const [name, amounts] of Object.entries(wish)) assert.deepEqual(shown(pod, name).resources, amounts);
    assert.deepEqual(
      [cpuLimit(pod, "cpu"), memoryLimit(pod, "memory"), cpuLimit(pod, "tiny")],
      ["3500", 50 * Mi, "1000"],
    );
  });

  test("restarts only containers whose policy requires it", async () => {
    const { pods } = lab;
    const resizePolicy: Container["resizePolicy"] = [
      { resourceName: "cpu", restartPolicy: "NotRequired" },
      { resourceName: "memory", restartPolicy: "RestartContainer" },
    ];
    await pods.create("restarts", {
      containers: [sleeper("a", has("100m", "32Mi"), { resizePolicy }), sleeper("b", has("100m", "32Mi"))],
    });
    const before = await pods.ready("restarts");
    const cpu = await lab.pods.resized(await resize("restarts", { a: has("150m", "32Mi") }));
    assert.deepEqual([containerId(cpu, "a"), cpuLimit(cpu, "a")], [containerId(before, "a"), "15000"]);
    const memory = await lab.pods.resized(await resize("restarts", { a: has("150m", "48Mi") }));
    assert.deepEqual(shown(memory, "a"), {
      resources: has("150m", "48Mi"),
      allocatedResources: { cpu: "150m", memory: "48Mi" },
      restartCount: 1,
    });
    assert.deepEqual([containerId(memory, "b"), memoryLimit(memory, "a")], [containerId(before, "b"), 48 * Mi]);
    await pods.event("restarts", "Killing", "Container a resize requires restart");
  });

  test("resizes a sidecar, and pod-level resources", async () => {
    const { pods } = lab;
    await pods.create("whole", {
      resources: has("100m", "64Mi"),
      initContainers: [sleeper("side", { requests: { cpu: "10m" } }, { restartPolicy: "Always" })],
      containers: [sleeper("main", {})],
    });
    const before = await pods.ready("whole");
    assert.deepEqual([cpuLimit(before, "main", 1), memoryLimit(before, "main")], ["10000", 64 * Mi]);
    const pod = await lab.pods.resized(await resize("whole", {}, has("200m", "96Mi")));
    assert.deepEqual(limitsOf(pod, ["main", "side"]), [
      ["20000", 96 * Mi],
      ["20000", 96 * Mi],
      ["20000", 96 * Mi],
    ]);
    assert.equal(containerId(pod, "main"), containerId(before, "main"));
    assert.deepEqual(
      [before.status?.resources, pod.status?.resources, pod.status?.allocatedResources],
      [has("100m", "64Mi"), has("200m", "96Mi"), { cpu: "200m", memory: "96Mi" }],
    );
  });

  test("defers a decrease below the memory in use, reports it, and completes it once possible", async () => {
    const { pods } = lab;
    const hold =
      "x=$(head -c 30000000 /dev/zero | tr '\\0' x); echo held; trap 'exit 0' TERM; while :; do sleep 0.2; done";
    await pods.create("full", { containers: [{ ...shell(hold), resources: has("200m", "256Mi") }] });
    await pods.ready("full");
    await pods.logged("full", /held/);
    await resize("full", { main: has("200m", "16Mi") });
    const why =
      /^cannot decrease memory limits: \[?attempting to set .* memory limit \(16777216\) below current usage \(\d+\)/;
    const stuck = await pods.until("full", "to say that it cannot", (pod) => {
      const { reason, message = "" } = condition(pod, "PodResizeInProgress") ?? {};
      return reason === "Error" && why.test(message);
    });
    assert.deepEqual([memoryLimit(stuck, "main"), shown(stuck, "main").resources], [256 * Mi, has("200m", "256Mi")]);
    await pods.event("full", "ResizeError", /"error":"cannot decrease memory limits/);
    const back = await lab.pods.resized(await resize("full", { main: has("200m", "192Mi") }));
    assert.equal(memoryLimit(back, "main"), 192 * Mi);
  });
});

describe("a resize that does not fit", () => {
  test("a resize that does not fit is Deferred with a reason, and is granted once another pod is gone", async () => {
    const { pods } = lab;
    const milli = await allocatableMilli();
    const most = `${Math.ceil(milli * 0.6)}m`;
    await pods.create("neighbour", { containers: [sleeper("main", { requests: { cpu: most } })] });
    await pods.ready("neighbour");
    await pods.create("waits", { containers: [sleeper("main", { requests: { cpu: "10m" } })] });
    const before = await pods.ready("waits");
    const asked = await resize("waits", { main: { requests: { cpu: most } } });
    const deferred = await pods.until(
      "waits",
      "to be deferred",
      (pod) => condition(pod, "PodResizePending") !== undefined,
    );
    const { reason, message, observedGeneration } = condition(deferred, "PodResizePending") ?? {};
    assert.deepEqual([reason, observedGeneration], ["Deferred", asked.metadata.generation]);
    assert.match(message ?? "", /^Node didn't have enough resource: cpu, requested: \d+, used: \d+, capacity: \d+$/);
    assert.deepEqual(statusOf(deferred)?.allocatedResources, { cpu: "10m" });
    await pods.event("waits", "ResizeDeferred", /^Pod resize OutOfcpu: \{.*"error":"Node didn't have enough/);

    const gone = pods.gone("neighbour");
    await pods.remove("neighbour");
    await gone;
    const done = await lab.pods.resized(asked);
    assert.deepEqual([statusOf(done)?.allocatedResources, containerId(done)], [{ cpu: most }, containerId(before)]);
    // The last test wants the room.
    await lab.pods.resized(await resize("waits", { main: { requests: { cpu: "10m" } } }));
  });

  test("a resize requested while graftlet is down is handled as a resize: the pod keeps running with its previous resources", async () => {
    const { pods, cluster } = lab;
    await pods.create("asleep", { containers: [sleeper("main", { requests: { cpu: "10m" } })] });
    const before = await pods.ready("asleep");
    await lab.pods.resized(await resize("asleep", { main: { requests: { cpu: "15m" } } }));
    assert.equal(await agent.stop(), true);
    // The whole node, of which others have a part: the API server refuses more.
    await resize("asleep", { main: { requests: { cpu: `${await allocatableMilli()}m` } } });
    agent = await startGraftlet(cluster);
    const pod = await pods.until("asleep", "to be deferred", (one) => condition(one, "PodResizePending") !== undefined);
    assert.deepEqual(
      [pod.status?.phase, containerId(pod), statusOf(pod)?.allocatedResources, statusOf(pod)?.restartCount],
      ["Running", containerId(before), { cpu: "15m" }, 0],
    );
    const small = await lab.pods.resized(await resize("asleep", { main: { requests: { cpu: "20m" } } }));
    assert.deepEqual(statusOf(small)?.resources, { requests: { cpu: "20m" } });
  });

  test("a Deferred resize is not granted by a restart, although no container shows the allocation", async () => {
    const { pods, cluster } = lab;
    const main = sleeper("main", { requests: { cpu: "10m" } });
    await pods.create("begins", { initContainers: [sleeper("init", {})], containers: [main] });
    const initOf = ({ status }: Pod) => status?.initContainerStatuses?.[0];
    const before = await pods.until("begins", "to begin", (pod) => initOf(pod)?.state?.running !== undefined);
    const most = `${await allocatableMilli()}m`;
    await resize("begins", { main: { requests: { cpu: most } } });
    await pods.until("begins", "to be deferred", (pod) => condition(pod, "PodResizePending") !== undefined);
    assert.equal(await agent.stop(), true);
    agent = await startGraftlet(cluster);
    // The agent that starts admits it before one that comes now.
    await pods.create("after", { containers: [sleeper("main", {})] });
    await pods.ready("after");
    const pod = await pods.api.get<Pod>("/api/v1/namespaces/default/pods/begins");
    assert.equal(condition(pod, "PodResizePending")?.reason, "Deferred");
    assert.deepEqual([pod.status?.phase, initOf(pod)?.containerID], ["Pending", initOf(before)?.containerID]);
  });
});
