import assert from "node:assert/strict";
import { test } from "node:test";
import { kubeletConditions } from "../../../src/node/conditions.ts";
import { createHeartbeat } from "../../../src/node/heartbeat.ts";
import type { Node } from "../../../src/objects.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeClient, silent } from "../api/fake-client.ts";

/** A heartbeat with an API server that stores its requests. */
function start(
  options: {
    readonly shown?: Node;
    readonly register?: boolean;
    readonly takenOver?: boolean;
    readonly problems?: string[];
    readonly owner?: () => Promise<boolean>;
  } = {},
) {
  const clock = fakeClock();
  const events: string[] = [];
  let node: Node | undefined = options.shown;
  let problems = options.problems ?? [];
  let registered = 0;
  let measuredReady = 0;
  let allocatable: Record<string, string> = { cpu: "1" };
  let absent: readonly string[] = [];
  let certain = false;
  const client = fakeClient((call) => {
    const { metadata, status } = call.body as { metadata?: Node["metadata"]; status: NonNullable<Node["status"]> };
    const addresses = status.addresses?.filter((address) => !("$patch" in address)) ?? [];
    const allocatable = Object.fromEntries(
      Object.entries(status.allocatable ?? {}).filter(([, value]) => value !== null),
    );
    if (node)
      node = {
        ...node,
        metadata: { ...node.metadata, labels: { ...node.metadata.labels, ...metadata?.labels } },
        status: { ...status, addresses, allocatable, capacity: { ...node.status?.capacity, ...status.capacity } },
      };
    return node;
  });
  const heartbeat = createHeartbeat({
    client,
    nodes: { node: () => node },
    nodeName: "n1",
    desired: async () => ({
      status: {
        addresses: [{ type: "InternalIP", address: "10.0.0.1" }],
        allocatable,
        nodeInfo: { bootID: "b2" } as NonNullable<NonNullable<Node["status"]>["nodeInfo"]>,
      },
      verdicts: kubeletConditions({ memory: false, disk: false, pid: false }, problems),
      absent,
      certain,
    }),
    isStillOwner: options.owner,
    register: async () => {
      registered += 1;
      node ??= { metadata: { name: "n1" } };
    },
    registerNode: options.register ?? true,
    isTakenOver: options.takenOver ?? false,
    labels: { "kubernetes.io/os": "linux" },
    updateMs: 10_000,
    reportMs: 300_000,
    measures: { ready: () => void (measuredReady += 1) },
    events: { event: (_about, type, reason, message) => events.push(`${type} ${reason} ${message}`) },
    clock,
    log: silent,
  });
  const stop = new AbortController();
  const running = heartbeat.run(stop.signal);
  return {
    clock,
    events,
    heartbeat,
    patches: () => client.calls.length,
    ready: () => node?.status?.conditions?.find(({ type }) => type === "Ready")?.status,
    registered: () => registered,
    measuredReady: () => measuredReady,
    conditions: () => node?.status?.conditions ?? [],
    setProblems: (...now: string[]) => void (problems = now),
    cordon: (unschedulable: boolean) => void (node = node && { ...node, spec: { unschedulable } }),
    setCertain: () => void (certain = true),
    setAbsent: (...types: string[]) => void (absent = types),
    setAllocatable: (now: Record<string, string>) => void (allocatable = now),
    remove: () => void (node = undefined),
    label: (labels: Record<string, string>) =>
      void (node = node && { ...node, metadata: { ...node.metadata, labels } }),
    labels: () => node?.metadata.labels,
    /** Status that the API server returns instead of the one that it was sent. */
    show: (status: Partial<NonNullable<Node["status"]>>) =>
      void (node = node && { ...node, status: { ...node.status, ...status } }),
    lastPatch: () =>
      client.calls.at(-1)?.body as { status: { capacity?: object; allocatable: object; conditions: object[] } },
    async [Symbol.asyncDispose]() {
      stop.abort();
      await clock.advance(20_000);
      await running;
    },
  };
}

const shownReady: Node = {
  metadata: { name: "n1" },
  status: {
    conditions: [{ type: "Ready", status: "True" }],
    nodeInfo: { bootID: "b1" } as NonNullable<NonNullable<Node["status"]>["nodeInfo"]>,
  },
};

test("registers, then posts the first status immediately with an event that the node is ready", async () => {
  await using t = start();
  await t.clock.advance(500);
  assert.deepEqual([t.registered(), t.ready(), t.measuredReady() > 0], [1, "True", true]);
  assert.ok(t.events.includes("Normal NodeReady Node n1 status is now: NodeReady"));
});

test("writes the status on a change, again after half to one and a half intervals, then every five minutes", async () => {
  await using t = start();
  await t.clock.advance(60_000);
  assert.equal(t.patches(), 1);
  t.setAllocatable({ memory: "1Ki" });
  await t.clock.advance(10_000);
  assert.equal(t.patches(), 2);
  assert.deepEqual(t.lastPatch().status.allocatable, { cpu: null, memory: "1Ki" });
  // The clock's jitter returns the lower bound.
  await t.clock.advance(140_000);
  assert.equal(t.patches(), 2);
  await t.clock.advance(20_000);
  assert.equal(t.patches(), 3);
  await t.clock.advance(280_000);
  assert.equal(t.patches(), 3);
  await t.clock.advance(30_000);
  assert.equal(t.patches(), 4);
});

test("a node that is not ready is checked soon after a change, then less and less often", async () => {
  await using t = start();
  await t.clock.advance(20_000);
  t.setProblems("container runtime is down");
  t.heartbeat.triggerUpdate();
  await t.clock.advance(500);
  assert.equal(t.ready(), "False");
  t.setProblems();
  await t.clock.advance(1_000);
  assert.equal(t.ready(), "True", "what ends by itself is seen without another hurry");
  t.setProblems("container runtime is down");
  t.heartbeat.triggerUpdate();
  await t.clock.advance(60_000);
  t.setProblems();
  await t.clock.advance(2_000);
  assert.equal(t.ready(), "False");
  await t.clock.advance(10_000);
  assert.equal(t.ready(), "True");
});

test("reports the start and the end of a problem immediately when an update is triggered", async () => {
  await using t = start();
  await t.clock.advance(20_000);
  t.setProblems("container runtime is down");
  t.heartbeat.triggerUpdate();
  await t.clock.advance(200);
  assert.equal(t.ready(), "False");
  t.setProblems();
  t.heartbeat.triggerUpdate();
  await t.clock.advance(200);
  assert.equal(t.ready(), "True");
  assert.deepEqual(
    t.events.filter((text) => /Ready/.test(text)).map((text) => text.split(" ")[1]),
    ["NodeReady", "NodeNotReady", "NodeReady"],
  );
});

test("a starting agent does not mark its node unready before it knows the node's state", async () => {
  await using t = start({ shown: shownReady, problems: ["container runtime status check may not have completed yet"] });
  await t.clock.advance(2_000);
  assert.equal(t.patches(), 0);
  t.setProblems();
  await t.clock.advance(200);
  assert.deepEqual([t.patches(), t.ready()], [1, "True"]);
  assert.deepEqual(
    t.events.filter((text) => /NotReady/.test(text)),
    [],
  );

  await using u = start({ shown: shownReady, problems: ["container runtime is down"] });
  await u.clock.advance(6_000);
  assert.equal(u.ready(), "False");
});

test("reports a shutdown right after the start immediately", async () => {
  await using t = start({ shown: shownReady, problems: ["node is shutting down"] });
  t.setCertain();
  await t.clock.advance(500);
  assert.equal(t.ready(), "False");
});

test("removes an unwanted condition once", async () => {
  await using t = start();
  await t.clock.advance(500);
  const deletions = () => t.lastPatch().status.conditions.filter((condition) => "$patch" in condition);
  t.setAbsent("PodNetworkIsolated", "TargetPrivileges");
  await t.clock.advance(10_000);
  assert.deepEqual([t.patches(), deletions()], [1, []], "one that is not there needs no patch");
  t.show({ conditions: [...t.conditions(), { type: "PodNetworkIsolated", status: "True" }] });
  await t.clock.advance(10_000);
  assert.deepEqual([t.patches(), deletions()], [2, [{ $patch: "delete", type: "PodNetworkIsolated" }]]);
  t.show({ conditions: t.conditions().filter((condition) => !("$patch" in condition)) });
  await t.clock.advance(30_000);
  assert.equal(t.patches(), 2);
});

test("emits one event when the node is cordoned and one when it is uncordoned", async () => {
  await using t = start({ shown: shownReady });
  const told = () => t.events.filter((line) => line.includes("Schedulable"));
  await t.clock.advance(20_000);
  assert.deepEqual(told(), []);
  t.cordon(true);
  await t.clock.advance(30_000);
  assert.deepEqual(told(), ["Normal NodeNotSchedulable Node n1 status is now: NodeNotSchedulable"]);
  t.cordon(false);
  await t.clock.advance(30_000);
  assert.equal(told().at(-1), "Normal NodeSchedulable Node n1 status is now: NodeSchedulable");
  assert.equal(told().length, 2);
});

const withoutPressure = {
  conditions: kubeletConditions({ memory: false, disk: false, pid: false }, []).map((one) => ({ ...one })),
};

test("an agent that takes a node over emits no event for a pressure that has not changed", async () => {
  await using t = start({ shown: { ...shownReady, status: withoutPressure }, takenOver: true });
  await t.clock.advance(500);
  assert.deepEqual(
    t.events.filter((line) => line.includes("NodeHas")),
    [],
  );
});

test("a starting agent emits one event per pressure, regardless of the Node's status", async () => {
  const status = withoutPressure;
  const sufficient = ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"];
  await using t = start({ shown: { ...shownReady, status } });
  const told = () => t.events.map((line) => line.split(" ")[1]).filter((reason) => reason !== "Rebooted");
  await t.clock.advance(500);
  assert.deepEqual(told(), sufficient);
  t.setAllocatable({ cpu: "2" });
  await t.clock.advance(20_000);
  assert.equal(t.patches(), 2);
  assert.deepEqual(told(), sufficient);

  await using other = start({ shown: { ...shownReady, status }, register: false });
  await other.clock.advance(500);
  assert.deepEqual([other.patches(), other.events], [1, []], "one that does not register makes no Node");
});

test("a changed boot ID counts as a reboot", async () => {
  await using t = start({ shown: shownReady });
  await t.clock.advance(500);
  const rebooted = () => t.events.filter((line) => line.includes("Rebooted"));
  assert.deepEqual(rebooted(), ["Warning Rebooted Node n1 has been rebooted, boot id: b2"]);
  t.show({ nodeInfo: shownReady.status?.nodeInfo });
  await t.clock.advance(20_000);
  assert.equal(t.patches(), 2);
  assert.equal(rebooted().length, 1, "one that is seen late is the same");
});

test("re-registers a deleted Node, which soon becomes ready", async () => {
  await using t = start();
  await t.clock.advance(30_000);
  t.remove();
  t.heartbeat.triggerUpdate();
  await t.clock.advance(1_000);
  assert.deepEqual([t.registered(), t.ready()], [2, "True"]);
});

test("does not create a missing Node if registration is disabled", async () => {
  await using t = start({ register: false });
  await t.clock.advance(60_000);
  assert.deepEqual([t.registered(), t.patches()], [0, 0]);
});

test("reconciles an existing Node once at the start", async () => {
  await using t = start({ shown: shownReady });
  await t.clock.advance(60_000);
  assert.equal(t.registered(), 1);
  await using other = start({ shown: shownReady, register: false });
  await other.clock.advance(60_000);
  assert.equal(other.registered(), 0);
});

test("ignores differences in the format of quantities, and resources of other components", async () => {
  const capacity = { "example.com/gpu": "2" };
  const allocatable = { cpu: "1", memory: "1Gi", ...capacity };
  await using t = start({ shown: { ...shownReady, status: { ...shownReady.status, capacity, allocatable } } });
  t.setAllocatable({ cpu: "1000m", memory: "1048576Ki" });
  await t.clock.advance(500);
  const before = t.patches();
  t.show({ allocatable });
  await t.clock.advance(30_000);
  assert.equal(t.patches(), before);
  t.show({ allocatable: { ...allocatable, "hugepages-2Mi": "0" } });
  await t.clock.advance(10_000);
  assert.equal(t.patches(), before + 1);
});

test("adds capacity set by other components to allocatable, and removes it when that capacity is removed", async () => {
  await using t = start({ shown: shownReady });
  await t.clock.advance(500);
  t.show({ capacity: { "example.com/dongle": "4" } });
  await t.clock.advance(10_000);
  const { status } = t.lastPatch();
  assert.deepEqual(status.allocatable, { cpu: "1", "example.com/dongle": "4" });
  assert.ok(!("example.com/dongle" in (status.capacity ?? {})), "it stays theirs");
  const written = t.patches();
  await t.clock.advance(60_000);
  assert.equal(t.patches(), written);
  t.show({ capacity: {} });
  await t.clock.advance(10_000);
  assert.deepEqual(t.lastPatch().status.allocatable, { "example.com/dongle": null, cpu: "1" });
});

test("restores changed system labels with the next status, but leaves other labels alone", async () => {
  await using t = start();
  await t.clock.advance(1_000);
  assert.equal(t.labels()?.["kubernetes.io/os"], "linux");
  const written = t.patches();
  t.label({ "kubernetes.io/os": "plan9", mine: "stays" });
  await t.clock.advance(11_000);
  assert.deepEqual(t.labels(), { "kubernetes.io/os": "linux", mine: "stays" });
  await t.clock.advance(60_000);
  assert.equal(t.patches(), written + 1, "and nothing more is written");
});

test("does not report a failure of the node once another process serves it, or while that cannot be found out", async () => {
  let asked = async () => false;
  await using t = start({ shown: shownReady, owner: () => asked() });
  await t.clock.advance(10_000);
  t.setProblems("the link is down");
  await t.clock.advance(60_000);
  asked = () => Promise.reject(new Error("no API server"));
  await t.clock.advance(60_000);
  assert.equal(t.ready(), "True");
  asked = async () => true;
  await t.clock.advance(11_000);
  assert.equal(t.ready(), "False");
});
