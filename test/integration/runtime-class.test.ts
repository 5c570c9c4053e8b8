import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Node, Pod } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { secondRuntimeHandler } from "../harness/containerd-config.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { cgroupValue } from "../harness/pod-machine.ts";
import { containerId, firstProcess, type SpecDraft } from "../harness/pods.ts";
import { handlersOf, sandboxHandler } from "../harness/runtime-handlers.ts";

const classes = "/apis/node.k8s.io/v1/runtimeclasses";
const taint = { key: "example.com/second", value: "only", effect: "NoSchedule" };

describe("runtime classes", () => {
  let lab: Lab;
  let restarted: Agent | undefined;

  const makeClass = (name: string, handler: string, more: object = {}): Promise<object> =>
    lab.pods.api.create(classes, {
      apiVersion: "node.k8s.io/v1",
      kind: "RuntimeClass",
      metadata: { name },
      handler,
      ...more,
    });
  /** Past the scheduler. */
  const onNode = (name: string, spec: SpecDraft): Promise<Pod> =>
    lab.pods.create(name, { nodeName: lab.cluster.nodeName, ...spec });

  before(async () => {
    lab = await startLab("runtime-class");
    const { cluster, pods } = lab;
    const node = { metadata: { labels: { "example.com/second": "yes" } }, spec: { taints: [taint] } };
    await pods.api.patch(`/api/v1/nodes/${cluster.nodeName}`, node, "merge-patch");
    await makeClass("second", secondRuntimeHandler, {
      overhead: { podFixed: { cpu: "250m", memory: "32Mi" } },
      scheduling: {
        nodeSelector: { "example.com/second": "yes" },
        tolerations: [{ key: taint.key, operator: "Exists", effect: taint.effect }],
      },
    });
  });
  after(async () => {
    await restarted?.[Symbol.asyncDispose]();
    await lab?.[Symbol.asyncDispose]();
  });

  test("lists the runtime's handlers and their features on the node, where the runtime reports them", async () => {
    const { cluster } = lab;
    const { status } = (await cluster.get<Node>("node", cluster.nodeName)) ?? {};
    const told = status?.runtimeHandlers?.toSorted((a, b) => (a.name ?? "").localeCompare(b.name ?? ""));
    assert.deepEqual(told, await handlersOf(cluster));
  });

  test("schedules a pod by its class, runs it with the handler, and adds the overhead", async () => {
    const { cluster, pods } = lab;
    const resources = { requests: { cpu: "100m", memory: "16Mi" }, limits: { cpu: "200m", memory: "32Mi" } };
    await pods.create("classed", { runtimeClassName: "second", containers: [{ resources }] });
    const pod = await pods.ready("classed");
    assert.equal(pod.spec.nodeName, cluster.nodeName);
    assert.deepEqual(
      [pod.spec.overhead, pod.spec.nodeSelector],
      [{ cpu: "250m", memory: "32Mi" }, { "example.com/second": "yes" }],
    );
    assert.equal(await sandboxHandler(cluster, pod), secondRuntimeHandler);
    const main = firstProcess(cluster, pod);
    const limits = (levelsUp: number) => [
      cgroupValue(cluster, main, ["cpu.cfs_quota_us", "cpu.max"], levelsUp).split(" ")[0],
      cgroupValue(cluster, main, ["memory.limit_in_bytes", "memory.max"], levelsUp),
    ];
    assert.deepEqual(limits(0), ["20000", String(32 * 2 ** 20)]);
    assert.deepEqual(limits(1), ["45000", String(64 * 2 ** 20)]);
  });

  test("counts a runtime class's overhead at admission", async () => {
    await makeClass("heavy", secondRuntimeHandler, { overhead: { podFixed: { cpu: "1000" } } });
    await onNode("heavy", { runtimeClassName: "heavy" });
    const { status } = await lab.pods.until("heavy", "to be refused", (pod) => pod.status?.phase === "Failed");
    assert.equal(status?.reason, "OutOfcpu");
    assert.match(status?.message ?? "", /requested: 1000000, /);
  });

  test("reports a missing handler in an event, and starts nothing of the pod", async () => {
    const { pods } = lab;
    await makeClass("nowhere", "no-such-handler");
    await onNode("nowhere", { runtimeClassName: "nowhere" });
    await pods.event("nowhere", "FailedCreatePodSandBox", /^Failed to create pod sandbox: .*"no-such-handler"/);
    const pod = await pods.until("nowhere", "to be Pending", ({ status }) => status?.startTime !== undefined);
    assert.deepEqual([pod.status?.phase, pod.status?.podIP], ["Pending", undefined]);
    const gone = pods.gone("nowhere");
    await pods.remove("nowhere");
    await gone;
  });

  test("reports a deleted class, and runs the pod once it is back", async () => {
    const { pods, cluster } = lab;
    const selected = { scheduling: { tolerations: [{ key: taint.key, operator: "Exists" }] } };
    await makeClass("brief", secondRuntimeHandler, selected);
    await pods.create("brief", { runtimeClassName: "brief", schedulingGates: [{ name: "example.com/later" }] });
    await pods.api.remove(`${classes}/brief`);
    await pods.api.patch("/api/v1/namespaces/default/pods/brief", { spec: { schedulingGates: null } }, "merge-patch");
    await pods.event(
      "brief",
      "FailedCreatePodSandBox",
      'Failed to create pod sandbox: runtimeclass.node.k8s.io "brief" not found',
    );
    await makeClass("brief", secondRuntimeHandler, selected);
    assert.equal(await sandboxHandler(cluster, await pods.ready("brief")), secondRuntimeHandler);
  });

  test("across a restart, keeps a class's pods running, and uses the default handler for other pods", async () => {
    const { cluster, pods, agent } = lab;
    const before = await pods.ready("classed");
    await agent.kill("SIGKILL");
    restarted = await startGraftlet(cluster);
    await onNode("plain", {});
    assert.notEqual(await sandboxHandler(cluster, await pods.ready("plain")), secondRuntimeHandler);
    const now = await pods.ready("classed");
    assert.equal(containerId(now), containerId(before));
  });
});
