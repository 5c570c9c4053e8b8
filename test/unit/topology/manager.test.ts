import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createCpuAllocator } from "../../../src/cpus/pod-allocator.ts";
import { type Assignments, createStaticPolicy } from "../../../src/cpus/static-policy.ts";
import { formatCpus } from "../../../src/lib/cpu-set.ts";
import type { Container } from "../../../src/objects.ts";
import type { ResourceManager } from "../../../src/resource-manager.ts";
import type { Alignment } from "../../../src/topology/aligned-allocation.ts";
import { createTopologyManager } from "../../../src/topology/manager.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { type TestPod, aPod } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { unalignedTopology } from "../../fakes/topology.ts";
import { waitFor } from "../../harness/wait.ts";
import { cpus, machine, noOptions } from "../cpus/machines.ts";
import { resource, rig } from "../devices/rig.ts";

const affinityError = {
  reason: "TopologyAffinityError",
  message: "Resources cannot be allocated with Topology locality",
};

/** A node with the CPUs 0 to 3 on NUMA node 0, of which 0 is reserved, and 4 to 7 on node 1; devices `a` and `b` of node 0, `c` of node 1.
 *  @param podLimits pod-level limits of all pods. */
async function nodeWith(t: TestContext, more: Partial<Alignment>, podLimits?: Readonly<Record<string, string>>) {
  const node = await rig(t);
  const plugin = await node.plugin({ devices: ["a@0", "b@0", "c@1"] });
  await plugin.register();
  await waitFor("the devices", () => node.shown() === "3/3", { everyMs: 5 });
  const assigned = new Map<string, ReadonlyMap<string, ReadonlySet<number>>>() satisfies Assignments;
  const policy = createStaticPolicy({
    topology: machine({ sockets: 2, cores: 4 }),
    options: noOptions,
    reserved: cpus(0),
    reservedMilli: 1000,
  });
  const exclusive: Pick<ResourceManager, "allocate" | "podAllocator"> = {
    podAllocator: async (pod) => {
      const commit = async (own: ReadonlyMap<string, ReadonlySet<number>>) => void assigned.set(pod.metadata.uid, own);
      return createCpuAllocator({ policy, assigned, measures: unmeasured.cpus, commit }, pod);
    },
  };
  const measured: string[] = [];
  const topology = createTopologyManager({
    alignment: {
      policy: "single-numa-node",
      preferClosest: false,
      scope: "container",
      podLevel: true,
      numa: { ids: [0, 1], distances: undefined },
      ...more,
    },
    managers: [node.devices, exclusive],
    measures: {
      enabled: () => void measured.push("enabled"),
      requested: () => void measured.push("requested"),
      failed: () => void measured.push("failed"),
      ended: () => {},
      aligned: (scope) => void measured.push(`aligned ${scope}`),
      unaligned: (scope) => void measured.push(`unaligned ${scope}`),
    },
    clock: fakeClock(),
  });
  const podOf = (uid: string, containers: readonly Container[]) =>
    aPod({ containers: [...containers], ...(podLimits && { resources: { limits: podLimits } }) }, { uid, name: uid });
  const pods = new Map<string, TestPod>();
  const admit = async (uid: string, ...containers: readonly Container[]) => {
    const pod = podOf(uid, containers);
    const others = [...pods.values()].filter(({ metadata }) => metadata.uid !== uid);
    const rejection = await topology.allocate(pod, others, never);
    if (!rejection) pods.set(uid, pod);
    return rejection;
  };
  const cpusOf = (uid: string) => [...(assigned.get(uid)?.values() ?? [])].map(formatCpus);
  const shares = (uid: string) =>
    Object.fromEntries([...(assigned.get(uid) ?? [])].map(([name, set]) => [name, formatCpus(set)]));
  return { node, plugin, admit, cpusOf, shares, measured };
}

function asking(name: string, cpu: string | undefined, devices = 0): Container {
  const amounts = { memory: "1Gi", ...(cpu && { cpu }), ...(devices > 0 && { [resource]: String(devices) }) };
  return { name, image: "i", resources: { requests: amounts, limits: amounts } };
}

test("gives a container CPUs and devices of the NUMA node that has enough of both", async (t) => {
  const { plugin, admit, cpusOf, measured } = await nodeWith(t, {});
  assert.equal(await admit("wide", asking("main", "4", 1)), undefined);
  assert.deepEqual(cpusOf("wide"), ["4-7"]);
  assert.equal(plugin.calls.at(-1), "Allocate c");
  assert.equal(await admit("two", asking("main", "2", 2)), undefined);
  assert.deepEqual(cpusOf("two"), ["1-2"]);
  assert.equal(plugin.calls.at(-1), "Allocate a,b");
  assert.deepEqual(measured, ["enabled", "requested", "aligned container", "requested", "aligned container"]);
});

test("rejects a pod with the kubelet's message; once released, nothing stays allocated", async (t) => {
  const { node, admit, cpusOf, measured } = await nodeWith(t, {});
  assert.deepEqual(await admit("late", asking("first", "1", 2), asking("second", "4", 2)), affinityError);
  assert.deepEqual(cpusOf("late"), [], "the first container's CPUs are not kept");
  assert.deepEqual(measured, ["enabled", "requested", "aligned container", "unaligned container", "failed"]);
  node.devices.release("late");
  assert.equal(await admit("next", asking("main", "3", 2)), undefined);
  assert.deepEqual(cpusOf("next"), ["1-3"]);
});

test("with scope pod, all containers get their resources from the same NUMA node", async (t) => {
  const { plugin, admit, cpusOf, measured } = await nodeWith(t, { scope: "pod" });
  assert.equal(await admit("pair", asking("a", "2", 1), asking("b", "2")), undefined);
  assert.deepEqual(cpusOf("pair"), ["4-5", "6-7"]);
  assert.equal(plugin.calls.at(-1), "Allocate c");
  assert.deepEqual(await admit("more", asking("a", "2", 1), asking("b", "2")), affinityError);
  assert.deepEqual(measured.slice(1), ["requested", "aligned pod", "requested", "unaligned pod", "failed"]);
});

test("restricted admits a request that needs several NUMA nodes, and best-effort admits one that has to be split", async (t) => {
  const restricted = await nodeWith(t, { policy: "restricted" });
  assert.equal(await restricted.admit("large", asking("main", "6", 3)), undefined);
  assert.equal(restricted.plugin.calls.at(-1), "Allocate a,b,c");
  const bestEffort = await nodeWith(t, { policy: "best-effort" });
  assert.equal(await bestEffort.admit("first", asking("main", "3", 1)), undefined);
  assert.equal(await bestEffort.admit("split", asking("main", "4", 2)), undefined);
  assert.equal(bestEffort.plugin.calls.at(-1), "Allocate b,c");
});

test("a running pod keeps its allocations when it is admitted again", async (t) => {
  const { plugin, admit, cpusOf } = await nodeWith(t, {});
  for (const _ of [1, 2]) assert.equal(await admit("pod", asking("main", "4", 1)), undefined);
  assert.deepEqual(cpusOf("pod"), ["4-7"]);
  assert.equal(plugin.calls.filter((call) => call.startsWith("Allocate")).length, 1);
});

test("a failed allocation rejects the pod; without alignment, no manager is asked after one has refused", async (t) => {
  const { plugin, admit, measured } = await nodeWith(t, {});
  plugin.break("Allocate", "broken");
  assert.equal((await admit("pod", asking("main", "1", 1)))?.reason, "UnexpectedAdmissionError");
  assert.equal(measured.at(-1), "failed");
  const asked: string[] = [];
  const manager = (name: string, refuses = false) => ({
    async allocate() {
      asked.push(name);
      return refuses ? { reason: "Full", message: name } : undefined;
    },
  });
  const none = unalignedTopology(manager("a"), manager("b", true), manager("c"));
  assert.deepEqual(await none.allocate(aPod(), [], never), { reason: "Full", message: "b" });
  assert.deepEqual(asked, ["a", "b"]);
});

test("without alignment, the managers are asked container by container, and commit once all have allocated", async () => {
  const asked: string[] = [];
  const manager = (name: string, full = ""): Pick<ResourceManager, "podAllocator"> => ({
    podAllocator: async () => ({
      hints: () => assert.fail("no hints are merged"),
      async allocate(container) {
        asked.push(`${name} ${container.name}`);
        return container.name === full ? { reason: "Full", message: name } : undefined;
      },
      commit: async () => void asked.push(`${name} commits`),
    }),
  });
  const pod = aPod({ initContainers: [sharing("init")], containers: [sharing("main")] });
  assert.equal(await unalignedTopology(manager("a"), manager("b")).allocate(pod, [], never), undefined);
  assert.deepEqual(asked.splice(0), ["a init", "b init", "a main", "b main", "a commits", "b commits"]);
  const short = unalignedTopology(manager("a", "main"), manager("b", "init"));
  assert.deepEqual(await short.allocate(pod, [], never), { reason: "Full", message: "b" });
  assert.deepEqual(asked, ["a init", "b init"]);
});

/** A container without resources of its own. */
const sharing = (name: string): Container => ({ name, image: "i" });

test("a pod with pod-level resources gets its CPUs from one NUMA node, and its containers share those that are not exclusive", async (t) => {
  const { admit, shares } = await nodeWith(t, { scope: "pod" }, { cpu: "4", memory: "4Gi" });
  assert.equal(await admit("p", asking("own", "1"), sharing("a"), sharing("b")), undefined);
  const expected = { "": "4-7", own: "4", a: "5-7", b: "5-7" };
  assert.deepEqual(shares("p"), expected);
  assert.equal(await admit("p", asking("own", "1"), sharing("a"), sharing("b")), undefined, "after a restart");
  assert.deepEqual(shares("p"), expected);
  assert.deepEqual(await admit("q", sharing("main")), {
    reason: "TopologyAffinityError",
    message: "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
  });
});

test("rejects a pod with pod-level resources whose containers leave no CPUs to share", async (t) => {
  const node = await nodeWith(t, { scope: "pod", policy: "best-effort" }, { cpu: "2", memory: "4Gi" });
  const rejection = await node.admit("p", asking("own", "2"), sharing("a"));
  assert.equal(rejection?.reason, "EmptyPodSharedPoolError");
});

test("with scope container, only containers with their own requests are aligned", async (t) => {
  const { admit, shares } = await nodeWith(t, {}, { cpu: "4", memory: "4Gi" });
  assert.equal(await admit("p", asking("own", "2"), sharing("a")), undefined);
  assert.deepEqual(shares("p"), { own: "1-2" });
  assert.deepEqual(await admit("q", asking("own", "5")), {
    reason: "TopologyAffinityError",
    message: "Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
  });
});
