import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import type { TestPluginOptions } from "../../harness/device-plugin.ts";
import { waitFor } from "../../harness/wait.ts";
import { aContainer } from "../../fakes/pods.ts";
import { allocatorOf, asking, resource, rig, type Rig, signal, wanting } from "./rig.ts";

const until = (what: string, poll: () => boolean) => waitFor(what, poll, { everyMs: 5, timeoutMs: 20_000 });

/** Node with a plugin whose devices are listed. */
async function served(t: TestContext, more: Partial<TestPluginOptions> = {}) {
  const node = await rig(t);
  const plugin = await registered(node, { devices: ["a", "b", "c"], ...more });
  return { node, plugin, allocator: allocatorOf(node) };
}

async function registered(node: Rig, more: Partial<TestPluginOptions> = {}) {
  const plugin = await node.plugin(more);
  await plugin.register();
  await until("devices", () => !["-/-", "0/0"].includes(node.shown()));
  return plugin;
}

const allocations = (calls: readonly string[]) => calls.filter((call) => call.startsWith("Allocate"));
const refusal = (why: string) => ({
  reason: "UnexpectedAdmissionError",
  message: `Allocate failed due to ${why}, which is unexpected`,
});

test("allocates requested devices once, exclusively to each container", async (t) => {
  const { plugin, allocator, node } = await served(t);
  const first = asking(2);
  assert.equal(await allocator.allocate(first, [], signal), undefined);
  assert.equal(await allocator.allocate(first, [], signal), undefined);
  assert.deepEqual(allocations(plugin.calls), ["Allocate a,b"]);
  const second = asking(1, "uid-2");
  assert.equal(await allocator.allocate(second, [first], signal), undefined);
  assert.deepEqual(allocations(plugin.calls), ["Allocate a,b", "Allocate c"]);
  assert.deepEqual(
    await allocator.allocate(asking(1, "uid-3"), [first, second], signal),
    refusal(`requested number of devices unavailable for ${resource}. Requested: 1, Available: 0`),
  );
  assert.equal(node.shown(), "3/3", "allocated devices still count for the node");
  const allocated = `allocated ${resource}`;
  assert.deepEqual(
    node.measured,
    [`registering ${resource}`, allocated, allocated],
    "each call of the plugin is measured",
  );
  assert.deepEqual(
    await allocator.allocate(asking(1), [second], signal),
    refusal(`pod "uid-1" container "c" changed request for resource "${resource}" from 2 to 1`),
  );
});

test("allocates no devices for a resource that a ResourceClaim provides", async (t) => {
  const { plugin, allocator, node } = await served(t);
  const pod = {
    ...asking(1),
    status: {
      extendedResourceClaimStatus: {
        resourceClaimName: "made",
        requestMappings: [{ containerName: "c", resourceName: resource, requestName: "r" }],
      },
    },
  };
  assert.equal(await allocator.allocate(pod, [], signal), undefined);
  const [container = aContainer("c")] = pod.spec.containers;
  assert.equal(await node.devices.prepareContainer(pod, container, signal), undefined);
  assert.deepEqual(allocations(plugin.calls), []);
});

test("frees a pod's devices once when the pod is released, even after a restart", async (t) => {
  const { plugin, allocator, node } = await served(t, { devices: ["a"] });
  assert.equal(await allocator.allocate(asking(1), [], signal), undefined);
  const next = asking(1, "uid-2");
  const early = allocatorOf(node, { allSourcesReady: false });
  assert.match((await early.allocate(next, [], signal))?.message ?? "", /requested number of devices unavailable/);
  node.devices.release("uid-1");
  node.devices.release("uid-1");
  assert.equal(await early.allocate(next, [], signal), undefined);
  node.devices.release("uid-2");
  const checkpoint = join(node.directory, "kubelet_internal_checkpoint");
  await until("the checkpoint", () => !readFileSync(checkpoint, "utf8").includes("uid-2"));
  const again = await node.restarted();
  const back = await again.plugin({ devices: ["a"] });
  await back.register();
  await until("the device", () => again.shown() === "1/1");
  assert.equal(
    await allocatorOf(again, { allSourcesReady: false }).allocate(asking(1, "uid-3"), [], signal),
    undefined,
  );
  assert.deepEqual(plugin.calls.filter((call) => call.startsWith("Allocate")).length, 2);
});

test("frees devices of terminated pods only after all sources are ready", async (t) => {
  const { plugin, allocator, node } = await served(t, { devices: ["a"] });
  assert.equal(await allocator.allocate(asking(1), [], signal), undefined);
  const early = allocatorOf(node, { allSourcesReady: false });
  assert.match((await early.allocate(asking(1, "uid-2"), [], signal))?.message ?? "", /Available: 0/);
  assert.equal(await allocator.allocate(asking(1, "uid-2"), [], signal), undefined);
  assert.deepEqual(allocations(plugin.calls), ["Allocate a", "Allocate a"]);
});

test("admits a pod without devices without waiting for a hanging plugin", async (t) => {
  const { allocator, node } = await served(t);
  assert.equal(await allocator.allocate(asking(0, "u", { containers: [aContainer("c")] }), [], signal), undefined);
  assert.equal(await node.devices.prepareContainer(asking(1), aContainer("c"), signal), undefined);
});

test("containers reuse devices of init containers, but not those of a sidecar", async (t) => {
  const { plugin, allocator } = await served(t);
  const initContainers = [wanting("init", 2), wanting("side", 1, { restartPolicy: "Always" })];
  const pod = asking(1, "uid-1", { initContainers, containers: [wanting("c", 1), wanting("d", 1)] });
  assert.equal(await allocator.allocate(pod, [], signal), undefined);
  assert.deepEqual(allocations(plugin.calls), ["Allocate a,b", "Allocate a", "Allocate b", "Allocate c"]);
});

test("allocates the devices that the plugin prefers among the available and required ones", async (t) => {
  const prefer = (ids: readonly string[]) => ["elsewhere", ...ids.toReversed()];
  const options = { getPreferredAllocationAvailable: true };
  const { plugin, allocator } = await served(t, { devices: ["a", "b", "c", "d"], options, prefer });
  assert.equal(await allocator.allocate(asking(2), [], signal), undefined);
  assert.deepEqual(allocations(plugin.calls), ["Allocate d,c"]);
  const pod = asking(2, "uid-2", { initContainers: [wanting("init", 1)] });
  assert.equal(await allocator.allocate(pod, [asking(2)], signal), undefined);
  assert.deepEqual(allocations(plugin.calls).slice(1), ["Allocate b", "Allocate b,a"]);
  assert.deepEqual(plugin.preferences.at(-1)?.containerRequests, [
    { availableDeviceIDs: ["a", "b"], mustIncludeDeviceIDs: ["b"], allocationSize: 2 },
  ]);
  plugin.break("GetPreferredAllocation", "no idea");
  assert.deepEqual(
    await allocator.allocate(asking(1, "uid-3"), [], signal),
    refusal("device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = no idea"),
  );
});

test("reports a plugin that failed or was lost, and leaves its devices unallocated", async (t) => {
  const { plugin, allocator, node } = await served(t);
  plugin.break("Allocate", "broken");
  assert.deepEqual(await allocator.allocate(asking(3), [], signal), refusal("rpc error: code = Unknown desc = broken"));
  plugin.die();
  await until("none to be healthy", () => node.shown() === "0/3");
  assert.deepEqual(
    await allocator.allocate(asking(1), [], signal),
    refusal(`no healthy devices present; cannot allocate unhealthy devices ${resource}`),
  );
  assert.equal(
    await allocatorOf(node).allocate(asking(3, "u", { containers: [aContainer("c")] }), [], signal),
    undefined,
  );
});

test("the extended resources of a pod that has its devices fit regardless of device health", async (t) => {
  const { plugin, allocator, node } = await served(t, { devices: ["a", "b"] });
  const pod = asking(2);
  await allocator.allocate(pod, [], signal);
  plugin.show(["a", "b:Unhealthy"]);
  await until("one to be unhealthy", () => node.shown() === "1/2");
  assert.deepEqual(allocator.allocatable(pod), { [resource]: "2" });
  assert.deepEqual(allocator.allocatable(asking(1, "uid-2")), { [resource]: "1" });
  assert.deepEqual(
    await allocator.allocate(pod, [], signal),
    refusal(`previously allocated devices are no longer healthy; cannot allocate unhealthy devices ${resource}`),
  );
});

test("a container gets the environment, mounts and devices that its plugin returns, and its status shows device health", async (t) => {
  const answer = (ids: readonly string[]) => ({
    envs: { GPU: ids.join("+") },
    mounts: [{ containerPath: "/lib/gpu", hostPath: "/opt/gpu", readOnly: true }],
    devices: [{ containerPath: "/dev/gpu", hostPath: "/dev/null", permissions: "rw" }],
    annotations: { "vendor.com/gpu": "yes" },
    cdiDevices: [{ name: "vendor.com/gpu=0" }],
  });
  const { plugin, allocator, node } = await served(t, { answer, devices: ["b", "a"] });
  const pod = asking(2);
  await allocator.allocate(pod, [], signal);
  assert.deepEqual(await node.devices.prepareContainer(pod, wanting("c", 2), signal), {
    environment: new Map([["GPU", "b+a"]]),
    mounts: [{ containerPath: "/lib/gpu", hostPath: "/opt/gpu", readOnly: true }],
    devices: [{ containerPath: "/dev/gpu", hostPath: "/dev/null", permissions: "rw" }],
    annotations: { "vendor.com/gpu": "yes" },
    cdiDevices: ["vendor.com/gpu=0"],
  });
  plugin.show(["b", "a:Unhealthy"]);
  await until("the pod to be woken", () => node.woken.includes("uid-1 device"));
  const resources = [
    { resourceID: "a", health: "Unhealthy" },
    { resourceID: "b", health: "Healthy" },
  ];
  assert.deepEqual(node.devices.health?.(asking(1), "c"), [{ name: resource, resources }]);
  assert.deepEqual(node.devices.health?.(asking(1), "other"), []);
});

test("calls PreStartContainer before each start, and does not start the container if the call fails", async (t) => {
  const { plugin, allocator, node } = await served(t, { options: { preStartRequired: true } });
  const pod = asking(1);
  const start = () => node.devices.prepareContainer(pod, wanting("c", 1), signal);
  await assert.rejects(start(), {
    message: `no devices found allocated in local cache for pod uid-1, container c, resource ${resource}`,
  });
  await allocator.allocate(pod, [], signal);
  await start();
  await start();
  assert.deepEqual(plugin.calls.slice(-2), ["PreStartContainer a", "PreStartContainer a"]);
  plugin.break("PreStartContainer", "dirty");
  await assert.rejects(start(), {
    message: "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = dirty",
  });
  plugin.die();
  await until("none to be healthy", () => node.shown() === "0/3");
  await assert.rejects(start(), { message: /rpc failed with err: endpoint test.device\/gpu has been stopped/ });
});

test("a container admitted before its plugin registered gets its devices when it starts", async (t) => {
  const node = await rig(t);
  const pod = asking(1);
  assert.equal(await allocatorOf(node).allocate(pod, [], signal), undefined);
  assert.equal(await node.devices.prepareContainer(pod, wanting("c", 1), signal), undefined);
  await registered(node, { answer: () => ({ envs: { A: "b" } }) });
  const has = await node.devices.prepareContainer(pod, wanting("c", 1), signal);
  assert.deepEqual(has?.environment, new Map([["A", "b"]]));
});

test("keeps allocations across a restart, and leaves running containers alone until their plugin is back", async (t) => {
  const { node } = await served(t, { devices: ["a"], answer: () => ({ envs: { A: "b" } }) });
  const pod = asking(1);
  assert.equal(await allocatorOf(node).allocate(pod, [], signal), undefined);
  await until("the devices to be written down", () => checkpointOf(node).includes(`"${resource}":["a"]`));

  const again = await node.restarted();
  assert.equal(await again.devices.startsAnew(signal), false);
  assert.equal(again.shown(), "0/0", "its plugin has yet to register again");
  const early = allocatorOf(again, { allSourcesReady: false, alive: ["uid-1"] });
  assert.equal(await early.allocate(pod, [], signal), undefined);
  assert.equal(early.allocatable(pod)[resource], "1");
  assert.deepEqual(
    await allocatorOf(again, { allSourcesReady: false }).allocate(pod, [], signal),
    refusal(`no healthy devices present; cannot allocate unhealthy devices ${resource}`),
  );

  const plugin = await registered(again, { devices: ["a"], socket: "again.sock" });
  assert.equal(await allocatorOf(again).allocate(pod, [], signal), undefined);
  assert.deepEqual((await again.devices.prepareContainer(pod, wanting("c", 1), signal))?.environment.get("A"), "b");
  assert.deepEqual(allocations(plugin.calls), []);
});

test("after a restart, a live pod is admitted even if some of its containers have ended or not started", async (t) => {
  const { node } = await served(t, { devices: ["a", "b"], answer: (ids) => ({ envs: { GPU: ids.join() } }) });
  const side = wanting("side", 1, { restartPolicy: "Always" });
  const pod = asking(1, "uid-1", { initContainers: [wanting("init", 1), side], containers: [wanting("c", 1)] });
  assert.equal(await allocatorOf(node).allocate(pod, [], signal), undefined);
  const again = await node.restarted();
  const early = allocatorOf(again, { allSourcesReady: false, alive: ["uid-1"] });
  assert.equal(await early.allocate(pod, [], signal), undefined);
  assert.deepEqual(
    await allocatorOf(again, { allSourcesReady: false }).allocate(pod, [], signal),
    refusal(`no healthy devices present; cannot allocate unhealthy devices ${resource}`),
    "a pod of which nothing runs any more, as after a reboot, needs its devices to be there",
  );
  await registered(again, { devices: ["a", "b"], socket: "again.sock" });
  for (const container of [wanting("init", 1), side, wanting("c", 1)]) {
    const has = await again.devices.prepareContainer(pod, container, signal);
    assert.equal(has?.environment.get("GPU"), container.name === "c" ? "b" : "a", container.name);
  }
});

test("treats a corrupt checkpoint as empty", async (t) => {
  const { node } = await served(t);
  await allocatorOf(node).allocate(asking(1), [], signal);
  await node.stop();
  writeFileSync(join(node.directory, "kubelet_internal_checkpoint"), checkpointOf(node).replace("uid-1", "uid-9"));
  const again = await node.restarted();
  assert.equal(again.shown(), "-/-");
  assert.equal(await again.devices.startsAnew(signal), false);
  await registered(again, { socket: "again.sock" });
});

test("reports a target without a checkpoint as new", async (t) => {
  assert.equal(await (await rig(t)).devices.startsAnew(signal), true);
});

function checkpointOf({ directory }: Rig): string {
  return readFileSync(join(directory, "kubelet_internal_checkpoint"), "utf8");
}
