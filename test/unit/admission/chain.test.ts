import assert from "node:assert/strict";
import { test } from "node:test";
import { createAdmission } from "../../../src/admission/chain.ts";
import type { Preempt } from "../../../src/admission/preemption.ts";
import { silentLog } from "../../../src/lib/log.ts";
import type { Node, PodSpec } from "../../../src/objects.ts";
import type { Pressure, Rejection } from "../../../src/pipeline.ts";
import { type TestPod, aContainer, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";

interface Given {
  readonly pod?: TestPod;
  readonly others?: readonly TestPod[];
  readonly node?: Node | undefined;
  readonly fresh?: Node;
  readonly allocatable?: Record<string, string>;
  /** Rejection by the device manager. */
  readonly noDevices?: Rejection;
  readonly makeRoom?: Preempt;
  readonly appArmor?: boolean;
  readonly goingDown?: true;
  readonly pressure?: Partial<Pressure>;
}

const aNode = (more: Partial<Node> = {}, labels: Record<string, string> = {}): Node => ({
  metadata: { name: "node", labels },
  ...more,
});

async function admit(given: Given): Promise<Rejection | undefined> {
  const {
    pod = aPod(),
    others = [],
    fresh,
    allocatable = { cpu: "4", memory: "8Gi", pods: "10", "ephemeral-storage": "10Gi" },
  } = given;
  const node = "node" in given ? given.node : aNode();
  const fetchNode = async () => {
    if (!fresh) throw new Error("API server is away");
    return fresh;
  };
  const log = silentLog();
  return createAdmission({
    node: { node: () => node },
    fetchNode,
    ownNode: aNode,
    pressure: () => given.pressure && { memory: false, disk: false, pid: false, ...given.pressure },
    allocatable: () => allocatable,
    topology: { allocate: async () => given.noDevices },
    managers: [{ allocatable: () => ({}) }],
    allowedUnsafeSysctls: ["kernel.msg*"],
    facts: { appArmor: given.appArmor ?? false },
    shuttingDown: { get: () => given.goingDown },
    preempt: given.makeRoom ?? (() => assert.fail("nothing makes room")),
    log,
  }).admit(pod, others, never);
}

const requesting = (requests: Record<string, string>, more: Partial<PodSpec> = {}) =>
  aPod({ containers: [aContainer("c", { resources: { requests } })], ...more });
const predicate = (name: string, why: string): Rejection => ({
  reason: name,
  message: `Predicate ${name} failed: ${why}`,
});
const affinityRefusal = predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");

test("admits a pod that fits on the node", async () => {
  assert.equal(await admit({ pod: requesting({ cpu: "4", memory: "8Gi", "ephemeral-storage": "10Gi" }) }), undefined);
});

test("fetches the Node if it is not cached, or uses the one that graftlet is about to register", async () => {
  const pod = requesting({ cpu: "5" });
  assert.equal((await admit({ pod, node: undefined }))?.reason, "OutOfcpu");
  assert.equal(await admit({ node: undefined }), undefined);
  assert.equal(await admit({ node: undefined, fresh: aNode() }), undefined);
});

test("admits a static pod before the API server has been reached", async () => {
  const pod = aPod({}, { annotations: { "kubernetes.io/config.source": "file" } });
  assert.equal(await admit({ pod, node: undefined }), undefined);
});

test("rejects a pod that requires a different operating system", async () => {
  const labelled = await admit({ pod: aPod({}, { labels: { "kubernetes.io/os": "windows" } }) });
  assert.deepEqual(labelled, {
    reason: "PodOSSelectorNodeLabelDoesNotMatch",
    message: "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
  });
  const field = await admit({ pod: aPod({ os: { name: "windows" } }) });
  assert.deepEqual(field, {
    reason: "PodOSNotSupported",
    message: "Failed to admit pod as the OS field doesn't match node OS",
  });
  assert.equal(
    await admit({ pod: aPod({ os: { name: "linux" } }, { labels: { "kubernetes.io/os": "linux" } }) }),
    undefined,
  );
});

test("supplementalGroupsPolicy Strict needs support from the runtime", async () => {
  const pod = aPod({ securityContext: { supplementalGroupsPolicy: "Strict" } });
  assert.equal((await admit({ pod }))?.reason, "SupplementalGroupsPolicyNotSupported");
  assert.equal(
    await admit({ pod, node: aNode({ status: { features: { supplementalGroupsPolicy: true } } }) }),
    undefined,
  );
});

test("resources: reports the first shortage with its amounts", async () => {
  const others = [requesting({ cpu: "3900m" })];
  assert.deepEqual(await admit({ pod: requesting({ cpu: "500m" }), others }), {
    reason: "OutOfcpu",
    message: "Node didn't have enough resource: cpu, requested: 500, used: 3900, capacity: 4000",
  });
  assert.deepEqual(await admit({ pod: requesting({ memory: "9Gi" }) }), {
    reason: "OutOfmemory",
    message: "Node didn't have enough resource: memory, requested: 9663676416, used: 0, capacity: 8589934592",
  });
  assert.equal((await admit({ pod: requesting({ "ephemeral-storage": "11Gi" }) }))?.reason, "OutOfephemeral-storage");
  assert.deepEqual(await admit({ others: Array.from({ length: 10 }, () => aPod()) }), {
    reason: "OutOfpods",
    message: "Node didn't have enough resource: pods, requested: 1, used: 10, capacity: 10",
  });
  assert.equal(await admit({ pod: requesting({ cpu: "100m" }), others }), undefined);
  // A pod that requests nothing fits on a node that is full.
  assert.equal(await admit({ others: [requesting({ cpu: "5" })] }), undefined);
});

test("resources: does not add up other pods' requests for resources that the pod does not request", async () => {
  // An invalid quantity fails the test if it is parsed.
  const others = [requesting({ memory: "unreadable" })];
  assert.equal(await admit({ others }), undefined);
  await assert.rejects(admit({ pod: requesting({ memory: "1Gi" }), others }), /"unreadable" is not a quantity/);
});

test("resources: counts the largest init container and adds sidecars and overhead", async () => {
  const init = (cpu: string, more = {}) => aContainer("i", { resources: { requests: { cpu } }, ...more });
  assert.equal((await admit({ pod: requesting({ cpu: "1" }, { initContainers: [init("5")] }) }))?.reason, "OutOfcpu");
  assert.equal(await admit({ pod: requesting({ cpu: "3" }, { initContainers: [init("4")] }) }), undefined);
  assert.equal(
    (await admit({ pod: requesting({ cpu: "3" }, { initContainers: [init("2", { restartPolicy: "Always" })] }) }))
      ?.reason,
    "OutOfcpu",
  );
  assert.equal((await admit({ pod: requesting({ cpu: "3" }, { overhead: { cpu: "2" } }) }))?.reason, "OutOfcpu");
});

test("reports device allocation failures after forbidden sysctls and before scheduling predicates", async () => {
  const noDevices = { reason: "UnexpectedAdmissionError", message: "Allocate failed" };
  const pod = requesting({ cpu: "100" });
  assert.deepEqual(await admit({ pod, noDevices }), noDevices);
  // Nothing is preempted for a critical pod, either.
  assert.deepEqual(await admit({ pod: requesting({ cpu: "100" }, { priority: 2_000_000_000 }), noDevices }), noDevices);
  const forbidden = requesting({}, { securityContext: { sysctls: [{ name: "vm.swappiness", value: "1" }] } });
  assert.equal((await admit({ pod: forbidden, noDevices }))?.reason, "SysctlForbidden");
});

test("takes the amounts of extended resources that other components added from the Node in the API server", async () => {
  const node = aNode({ status: { allocatable: { "example.com/dongle": "0", cpu: "0" } } });
  assert.equal(
    (await admit({ pod: requesting({ "example.com/dongle": "1" }), node }))?.reason,
    "OutOfexample.com/dongle",
  );
  assert.equal(await admit({ pod: requesting({ cpu: "1" }), node }), undefined);
});

test("checks requests for extended resources only if the node has them, but always checks huge pages", async () => {
  const allocatable = { cpu: "4", pods: "10", "example.com/gpu": "1" };
  assert.equal(
    (await admit({ pod: requesting({ "example.com/gpu": "2" }), allocatable }))?.reason,
    "OutOfexample.com/gpu",
  );
  assert.equal(await admit({ pod: requesting({ "example.com/other": "2" }), allocatable }), undefined);
  assert.equal(
    (await admit({ pod: requesting({ "hugepages-2Mi": "2Mi" }), allocatable }))?.reason,
    "OutOfhugepages-2Mi",
  );
});

test("checks node selector and affinity against a freshly fetched Node before rejecting", async () => {
  const pod = aPod({ nodeSelector: { disk: "ssd" } });
  assert.deepEqual(await admit({ pod }), affinityRefusal);
  assert.equal(await admit({ pod, node: aNode({}, { disk: "ssd" }) }), undefined);
  assert.equal(await admit({ pod, fresh: aNode({}, { disk: "ssd" }) }), undefined);
  assert.deepEqual(await admit({ pod, fresh: aNode({}, { disk: "hdd" }) }), affinityRefusal);
});

const byLabel = (operator: string, values?: string[], key = "zone") => ({
  matchExpressions: [{ key, operator, ...(values && { values }) }],
});
const byField = (operator: string, ...values: string[]) => ({
  matchFields: [{ key: "metadata.name", operator, values }],
});
const terms: [string, object[], boolean][] = [
  ["In", [byLabel("In", ["a", "b"])], true],
  ["In and another value", [byLabel("In", ["c"])], false],
  ["NotIn", [byLabel("NotIn", ["c"])], true],
  ["NotIn and a label that the node lacks", [byLabel("NotIn", ["c"], "none")], true],
  ["NotIn and the node's value", [byLabel("NotIn", ["a"])], false],
  ["Exists", [byLabel("Exists")], true],
  ["DoesNotExist", [byLabel("DoesNotExist")], false],
  ["Gt", [byLabel("Gt", ["4"], "size")], true],
  ["Gt and an equal number", [byLabel("Gt", ["5"], "size")], false],
  ["Lt", [byLabel("Lt", ["10"], "size")], true],
  ["Lt and a label that is not a number", [byLabel("Lt", ["10"])], false],
  ["an unknown operator", [byLabel("Near", ["a"])], false],
  ["In for a field", [byField("In", "node")], true],
  ["In for a field and two values", [byField("In", "node", "other")], false],
  ["NotIn for a field and the node's value", [byField("NotIn", "node")], false],
  ["one matching term of two", [byLabel("DoesNotExist"), byLabel("Exists")], true],
  ["an empty term", [{}], false],
  ["no terms", [], false],
  ["a term of which only one expression matches", [{ ...byLabel("Exists"), ...byField("In", "other") }], false],
];

for (const [name, nodeSelectorTerms, matches] of terms) {
  test(`node affinity ${matches ? "matches" : "does not match"} with ${name}`, async () => {
    const affinity = { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms } } };
    const refusal = await admit({ pod: aPod({ affinity }), node: aNode({}, { zone: "a", size: "5" }) });
    assert.deepEqual(refusal, matches ? undefined : affinityRefusal);
  });
}

test("rejects a pod bound to another node", async () => {
  assert.deepEqual(
    await admit({ pod: aPod({ nodeName: "other" }) }),
    predicate("NodeName", "node(s) didn't match the requested node name"),
  );
});

test("host ports conflict if address, protocol and port number overlap", async () => {
  const withPort = (port: { hostIP?: string; protocol?: string; hostPort?: number }) =>
    aPod({ containers: [aContainer("c", { ports: [{ containerPort: 80, ...port }] })] });
  const clash = predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports");
  const others = [withPort({ hostPort: 80, hostIP: "10.0.0.1" })];
  assert.deepEqual(await admit({ pod: withPort({ hostPort: 80 }), others }), clash);
  assert.deepEqual(
    await admit({ pod: withPort({ hostPort: 80, hostIP: "10.0.0.1", protocol: "TCP" }), others }),
    clash,
  );
  assert.equal(await admit({ pod: withPort({ hostPort: 80, hostIP: "10.0.0.2" }), others }), undefined);
  assert.equal(await admit({ pod: withPort({ hostPort: 80, protocol: "UDP" }), others }), undefined);
  assert.equal(await admit({ pod: withPort({ hostPort: 81 }), others }), undefined);
  assert.equal(await admit({ pod: withPort({}), others: [withPort({})] }), undefined);
});

test("rejects pods that do not tolerate a NoExecute taint; leaves other taints to the scheduler", async () => {
  const tainted = (effect: string) => aNode({ spec: { taints: [{ key: "k", value: "v", effect }] } });
  const refusal = predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate");
  assert.deepEqual(await admit({ node: tainted("NoExecute") }), refusal);
  assert.equal(await admit({ node: tainted("NoSchedule") }), undefined);
  const tolerating = (toleration: object) =>
    admit({ node: tainted("NoExecute"), pod: aPod({ tolerations: [toleration] }) });
  for (const yes of [
    { operator: "Exists" },
    { key: "k", operator: "Exists" },
    { key: "k", value: "v" },
    { key: "k", operator: "Equal", value: "v", effect: "NoExecute" },
  ]) {
    assert.equal(await tolerating(yes), undefined, JSON.stringify(yes));
  }
  for (const no of [
    { key: "k", value: "w" },
    { key: "other", operator: "Exists" },
    { operator: "Exists", effect: "NoSchedule" },
    { key: "k", operator: "Gt", value: "1" },
  ]) {
    assert.deepEqual(await tolerating(no), refusal, JSON.stringify(no));
  }
  assert.equal(
    await admit({
      node: tainted("NoExecute"),
      pod: aPod({}, { annotations: { "kubernetes.io/config.source": "file" } }),
    }),
    undefined,
  );
});

test("reports the first of several reasons for rejection, and does not refetch the Node needlessly", async () => {
  const pod = requesting({ cpu: "9" }, { nodeSelector: { disk: "ssd" } });
  assert.equal((await admit({ pod }))?.reason, "OutOfcpu");
});

test("a forbidden sysctl is reported before any other rejection; allowed unsafe sysctls are admitted", async () => {
  const sysctls = (name: string) => ({ securityContext: { sysctls: [{ name, value: "1" }] }, nodeName: "elsewhere" });
  assert.equal((await admit({ pod: aPod(sysctls("kernel.sem")) }))?.reason, "SysctlForbidden");
  assert.equal((await admit({ pod: aPod(sysctls("kernel.msgmax")) }))?.reason, "NodeName");
});

test("a critical pod preempts other pods for every resource in short supply, unless another check rejects it", async () => {
  const asked: string[][] = [];
  const makeRoom: Preempt = async (_pod, _others, short) => {
    asked.push(short.map(({ resource }) => resource));
    return undefined;
  };
  const critical = (more: Partial<PodSpec>) =>
    requesting({ cpu: "9", memory: "9Gi" }, { priority: 2_000_000_000, ...more });
  assert.equal(await admit({ pod: critical({}), makeRoom }), undefined);
  assert.deepEqual(asked, [["cpu", "memory"]]);
  assert.equal((await admit({ pod: critical({ nodeName: "other" }), makeRoom }))?.reason, "NodeName");
  assert.equal((await admit({ pod: critical({ os: { name: "windows" } }), makeRoom }))?.reason, "PodOSNotSupported");
  assert.equal((await admit({ pod: critical({ priority: 1_999_999_999 }), makeRoom }))?.reason, "OutOfcpu");
  assert.equal(asked.length, 1);
});

test("an AppArmor profile needs a kernel with AppArmor, unless the pod has already started", async () => {
  const refusal = { reason: "AppArmor", message: "Cannot enforce AppArmor: AppArmor is not enabled on the host" };
  const profile = (type: string) => ({ securityContext: { appArmorProfile: { type } } });
  const annotated = (value: string) =>
    aPod({}, { annotations: { "container.apparmor.security.beta.kubernetes.io/c": value } });
  const confined = aPod(profile("RuntimeDefault"));
  for (const pod of [
    confined,
    aPod({ initContainers: [aContainer("i", profile("Localhost"))] }),
    annotated("runtime/default"),
  ]) {
    assert.deepEqual(await admit({ pod }), refusal);
    assert.equal(await admit({ pod, appArmor: true }), undefined);
    assert.equal(await admit({ pod: { ...pod, status: { phase: "Running" } } }), undefined);
  }
  for (const pod of [aPod(profile("Unconfined")), annotated("unconfined")])
    assert.equal(await admit({ pod }), undefined);
  const pod = aPod({ ...profile("RuntimeDefault"), nodeName: "other" });
  assert.equal((await admit({ pod }))?.reason, "NodeName");
});

const conditions = (names: string): Rejection => ({
  reason: "Evicted",
  message: `The node had condition: [${names}]. `,
});

test("under node pressure, rejects a new pod before all other checks, and names every condition", async () => {
  const pod = requesting({ cpu: "9" });
  assert.deepEqual(await admit({ pod, pressure: { disk: true } }), conditions("DiskPressure"));
  assert.deepEqual(await admit({ pod, pressure: { pid: true } }), conditions("PIDPressure"));
  const all = { memory: true, disk: true, pid: true };
  assert.deepEqual(
    await admit({ node: undefined, pressure: all }),
    conditions("MemoryPressure DiskPressure PIDPressure"),
  );
  assert.equal(await admit({ pressure: {} }), undefined);
});

test("memory pressure alone rejects only BestEffort pods that do not tolerate it", async () => {
  const pressure = { memory: true };
  const key = "node.kubernetes.io/memory-pressure";
  assert.deepEqual(await admit({ pressure }), conditions("MemoryPressure"));
  assert.equal(await admit({ pod: requesting({ cpu: "1m" }), pressure }), undefined, "Burstable");
  const tolerant = aPod({ tolerations: [{ key, operator: "Exists", effect: "NoSchedule" }] });
  assert.equal(await admit({ pod: tolerant, pressure }), undefined);
  assert.deepEqual(
    await admit({ pod: tolerant, pressure: { memory: true, disk: true } }),
    conditions("MemoryPressure DiskPressure"),
  );
  const other = aPod({ tolerations: [{ key: "node.kubernetes.io/disk-pressure", operator: "Exists" }] });
  assert.deepEqual(await admit({ pod: other, pressure }), conditions("MemoryPressure"));
});

test("critical, static and already started pods are admitted under any pressure", async () => {
  const pressure = { memory: true, disk: true, pid: true };
  assert.equal(await admit({ pod: aPod({ priority: 2_000_000_000 }), pressure }), undefined);
  assert.deepEqual((await admit({ pod: aPod({ priority: 1_999_999_999 }), pressure }))?.reason, "Evicted");
  const fromFile = aPod({}, { annotations: { "kubernetes.io/config.source": "file" } });
  assert.equal(await admit({ pod: fromFile, pressure }), undefined);
  const begun = { ...aPod(), status: { phase: "Running", startTime: "2026-01-01T00:00:00Z" } };
  assert.equal(await admit({ pod: begun, pressure }), undefined);
});

test("rejects all pods, even critical ones, while the node shuts down, but reports any other reason first", async () => {
  const refusal = { reason: "NodeShutdown", message: "Pod was rejected as the node is shutting down." };
  assert.deepEqual(await admit({ goingDown: true }), refusal);
  assert.deepEqual(await admit({ goingDown: true, pod: aPod({ priority: 2_000_000_000 }) }), refusal);
  const profiled = aPod({
    containers: [aContainer("c", { securityContext: { appArmorProfile: { type: "Localhost" } } })],
  });
  assert.equal((await admit({ goingDown: true, pod: profiled }))?.reason, "AppArmor");
});

test("rejects a pod with a user namespace and host networking, because the node does not declare that feature", async () => {
  assert.deepEqual(await admit({ pod: aPod({ hostNetwork: true, hostUsers: false }) }), {
    reason: "PodFeatureUnsupported",
    message: "Pod requires node features that are not available: UserNamespacesHostNetworkSupport",
  });
  for (const spec of [{ hostNetwork: true }, { hostUsers: false }])
    assert.equal(await admit({ pod: aPod(spec) }), undefined);
});
