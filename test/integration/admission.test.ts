import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import type { Node } from "../../src/objects.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { processesOf } from "../harness/pod-machine.ts";
import { type SpecDraft, statusOf } from "../harness/pods.ts";

let lab: Lab;
before(async () => {
  lab = await startLab("admission", { config: { systemReserved: { cpu: "200m" }, kubeReserved: { cpu: "300m" } } });
});
after(() => lab?.[Symbol.asyncDispose]());

const nodePath = () => `/api/v1/nodes/${lab.cluster.nodeName}`;

/** Binds a pod to the node past the scheduler, and expects the node's refusal. */
async function refused(
  name: string,
  spec: SpecDraft,
  reason: string,
  message: string,
  metadata: object = {},
): Promise<void> {
  const { pods, cluster } = lab;
  await pods.create(name, { nodeName: cluster.nodeName, ...spec }, metadata);
  const {
    status,
    metadata: { uid },
  } = await pods.until(name, "to be refused", (pod) => pod.status?.phase === "Failed");
  const { conditions = [], ...rest } = status ?? {};
  // The cluster's taint manager may have marked the pod for deletion meanwhile.
  assert.deepEqual(
    conditions.filter(({ type }) => type !== "DisruptionTarget"),
    [],
  );
  assert.deepEqual(
    { ...rest, startTime: "", qosClass: "", observedGeneration: 0 },
    {
      phase: "Failed",
      reason,
      message: `Pod was rejected: ${message}`,
      startTime: "",
      qosClass: "",
      observedGeneration: 0,
    },
  );
  assert.ok(status?.startTime && status.qosClass);
  const event = await pods.event(name, reason, message);
  assert.equal(event.type, "Warning");
  assert.deepEqual(processesOf(cluster, uid), []);
}

describe("admission with the kubelet's reasons and messages", { concurrency: 4 }, () => {
  test("rejects more CPU, memory or pods than the node has", async () => {
    const { pods } = lab;
    const { status } = await pods.api.get<Node>(nodePath());
    const cpu = Math.round(Number(status?.capacity?.["cpu"]) * 1000) - 500;
    assert.ok(
      [`${cpu}m`, String(cpu / 1000)].includes(status?.allocatable?.["cpu"] ?? ""),
      `allocatable is what is not reserved: ${status?.allocatable?.["cpu"]}`,
    );
    await pods.create("modest", { containers: [{ resources: { requests: { cpu: "100m" } } }] });
    await pods.ready("modest");
    await refused(
      "cpu",
      { containers: [{ resources: { requests: { cpu: `${cpu - 50}m` } } }] },
      "OutOfcpu",
      `Node didn't have enough resource: cpu, requested: ${cpu - 50}, used: 100, capacity: ${cpu}`,
    );
    const bytes = Number.parseInt(status?.allocatable?.["memory"] ?? "", 10) * 1024;
    await refused(
      "memory",
      { containers: [{ resources: { requests: { memory: "64Ti" } } }] },
      "OutOfmemory",
      `Node didn't have enough resource: memory, requested: ${64 * 2 ** 40}, used: 0, capacity: ${bytes}`,
    );
  });

  test("rejects a node selector or affinity that does not match", async () => {
    const message = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    await refused("selector", { nodeSelector: { disk: "fast" } }, "NodeAffinity", message);
    const nodeSelectorTerms = [
      { matchExpressions: [{ key: "kubernetes.io/hostname", operator: "NotIn", values: [lab.cluster.nodeName] }] },
    ];
    await refused(
      "affinity",
      { affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } } } },
      "NodeAffinity",
      message,
    );
  });

  test("rejects a pod whose host port is in use until the other pod is gone", async () => {
    const { pods, cluster } = lab;
    const spec = (hostPort: number): SpecDraft => ({
      nodeName: cluster.nodeName,
      containers: [{ ports: [{ containerPort: 80, hostPort }] }],
    });
    await pods.create("port", spec(18081));
    await pods.ready("port");
    await refused(
      "same-port",
      spec(18081),
      "NodePorts",
      "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    );
    const gone = pods.gone("port");
    await pods.remove("port");
    await gone;
    await pods.create("port-again", spec(18081));
    await pods.ready("port-again");
  });

  test("rejects a pod with an AppArmor profile if the machine cannot enforce it", async () => {
    const spec = { securityContext: { appArmorProfile: { type: "RuntimeDefault" } } };
    const message = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
    if (!existsSync("/sys/kernel/security/apparmor")) return refused("apparmor", spec, "AppArmor", message);
    await lab.pods.create("apparmor", spec);
    await lab.pods.ready("apparmor");
  });

  test("rejects a pod that requires a different operating system", async () => {
    await refused(
      "windows",
      { os: { name: "windows" } },
      "PodOSNotSupported",
      "Failed to admit pod as the OS field doesn't match node OS",
    );
    await refused(
      "windows-label",
      { nodeSelector: {} },
      "PodOSSelectorNodeLabelDoesNotMatch",
      "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
      { labels: { "kubernetes.io/os": "windows" } },
    );
  });
});

describe("pods with unsupported fields", { concurrency: 4 }, () => {
  const cases: readonly (readonly [string, SpecDraft, string])[] = [
    [
      "fc",
      { volumes: [{ name: "data", fc: { targetWWNs: ["500a0982991b8dc5"], lun: 0 } }] },
      'spec.volumes[0].fc (no volume plugin matched: volume "data" of type fc)',
    ],
    [
      "several",
      {
        hostUsers: false,
        containers: [{}, { name: "second", resources: { claims: [{ name: "gpu" }] } }],
        resourceClaims: [{ name: "gpu", resourceClaimName: "gpu" }],
      },
      "spec.hostUsers (no handler of the container runtime supports user namespaces: use containerd 2.0 or newer, or CRI-O, with runc 1.2 or newer, or crun), spec.resourceClaims (containerd injects no CDI devices: use containerd 2.0 or newer, or containerd 1.7 with enable_cdi)",
    ],
  ];
  for (const [name, spec, fields] of cases) {
    test(`holds the pod ${name} without starting anything, and names its unsupported fields`, async () => {
      const { pods, cluster } = lab;
      await pods.create(name, { nodeName: cluster.nodeName, ...spec });
      const event = await pods.event(name, "UnsupportedField", `pod is held: this node does not support ${fields}`);
      assert.equal(event.type, "Warning");
      // A pod that came later runs: this one had its turn.
      await pods.create(`after-${name}`, { nodeName: cluster.nodeName });
      await pods.ready(`after-${name}`);
      const held = await pods.until(name, "to be Pending", ({ status }) => status?.startTime !== undefined);
      assert.deepEqual(
        [held.status?.phase, statusOf(held)?.containerID, statusOf(held)?.state?.running],
        ["Pending", undefined, undefined],
      );
      assert.deepEqual(processesOf(cluster, held.metadata.uid), []);
      const gone = pods.gone(name);
      await pods.remove(name);
      await gone;
    });
  }
});

test("holds a pod whose devices come from a ResourceClaim, if its runtime cannot inject them", async () => {
  const { pods, cluster } = lab;
  const resources = { requests: { "example.com/gpu": "1" }, limits: { "example.com/gpu": "1" } };
  await pods.create("claimed", { schedulerName: "nobody", containers: [{ resources }] });
  // What the scheduler does for a DeviceClass with an extendedResourceName.
  const { metadata, spec } = await pods.until("claimed", "to be there", () => true);
  const containerName = spec.containers[0]?.name ?? "";
  const mapping = { containerName, resourceName: "example.com/gpu", requestName: "container-0-request-0" };
  const status = { extendedResourceClaimStatus: { resourceClaimName: "claimed-gpu", requestMappings: [mapping] } };
  const patch = ["--subresource=status", "--type=merge", `--patch=${JSON.stringify({ status })}`];
  await cluster.mustKubectl(["patch", "pod", "claimed", ...patch]);
  const target = { kind: "Node", name: cluster.nodeName };
  const binding = { apiVersion: "v1", kind: "Binding", metadata: { name: "claimed", uid: metadata.uid }, target };
  const path = "/api/v1/namespaces/default/pods/claimed/binding";
  await cluster.mustKubectl(["create", "--raw", path, "--filename=-"], { stdin: JSON.stringify(binding) });
  await pods.event(
    "claimed",
    "UnsupportedField",
    "pod is held: this node does not support status.extendedResourceClaimStatus (containerd injects no CDI devices: use containerd 2.0 or newer, or containerd 1.7 with enable_cdi)",
  );
  const held = await pods.until("claimed", "to be Pending", ({ status: now }) => now?.startTime !== undefined);
  assert.deepEqual([held.status?.phase, statusOf(held)?.containerID], ["Pending", undefined]);
  assert.equal(held.status?.extendedResourceClaimStatus?.resourceClaimName, "claimed-gpu");
  assert.deepEqual(processesOf(cluster, metadata.uid), []);
});

test("preempts a pod to admit a critical one, and reports this as the reason", async () => {
  const { pods, cluster } = lab;
  const { status } = await pods.api.get<Node>(nodePath());
  const cpu = Math.round(Number(status?.capacity?.["cpu"]) * 1000) - 500;
  const container = (milli: number) => ({ resources: { requests: { cpu: `${milli}m` } } });
  await pods.create("yielding", { nodeName: cluster.nodeName, containers: [container(cpu - 200)] });
  await pods.ready("yielding");
  const priorityClassName = "system-node-critical";
  await pods.create("critical", { nodeName: cluster.nodeName, priorityClassName, containers: [container(cpu - 150)] });
  const ended = await pods.until("yielding", "to make room", ({ status: now }) => now?.phase === "Failed");
  const message = "Preempted in order to admit critical pod";
  assert.deepEqual([ended.status?.reason, ended.status?.message], ["Preempting", message]);
  const disruption = ended.status?.conditions?.find(({ type }) => type === "DisruptionTarget");
  assert.deepEqual(
    [disruption?.status, disruption?.reason, disruption?.message],
    ["True", "TerminationByKubelet", "Pod was preempted by Kubelet to accommodate a critical pod."],
  );
  assert.equal((await pods.event("yielding", "Preempting", message)).type, "Warning");
  await pods.ready("critical");
  assert.deepEqual(processesOf(cluster, ended.metadata.uid), []);
  const counted = await cluster.mustKubectl(["get", "--raw", `${nodePath()}/proxy/metrics`]);
  assert.match(counted, /^kubelet_preemptions\{preemption_signal="cpu"\} 1$/m);
  // Nothing that is not critical itself can make room for more than the node has.
  await refused(
    "too-critical",
    { priorityClassName: "system-cluster-critical", containers: [container(cpu)] },
    "UnexpectedAdmissionError",
    "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods to " +
      `preempt: no set of running pods found to reclaim resources: [(res: cpu, q: ${cpu - 150}), ]`,
  );
  for (const name of ["critical", "yielding"]) await pods.remove(name);
});

// It stands last: the cluster goes on evicting pods for a moment after a taint has gone.
test("rejects pods without a toleration for a NoExecute taint; ignores NoSchedule", async () => {
  const { pods, cluster } = lab;
  const taint = (effect: string) =>
    pods.api.patch(nodePath(), { spec: { taints: [{ key: "lab", value: "closed", effect }] } }, "merge-patch");
  await taint("NoSchedule");
  await pods.create("bound", { nodeName: cluster.nodeName });
  await pods.ready("bound");
  await taint("NoExecute");
  // The taint reaches graftlet by a watch: what is bound before it arrives may still be let in.
  await cluster.waitFor("the taint to be known to the node", async () => {
    await pods.create("scout", { nodeName: cluster.nodeName });
    const { status } = await pods.until(
      "scout",
      "to be decided on",
      (pod) => pod.status?.phase !== "Pending" || pod.metadata.deletionTimestamp !== undefined,
    );
    const gone = pods.gone("scout");
    await pods.remove("scout", 0);
    await gone;
    return status?.reason === "TaintToleration";
  });
  await refused(
    "tainted",
    {},
    "TaintToleration",
    "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
  );
  await pods.create("tolerant", {
    nodeName: cluster.nodeName,
    tolerations: [{ key: "lab", operator: "Exists", effect: "NoExecute" }],
  });
  await pods.ready("tolerant");
  await pods.api.patch(nodePath(), { spec: { taints: null } }, "merge-patch");
});
