import assert from "node:assert/strict";
import { existsSync, statSync, writeFileSync } from "node:fs";
import { dirname } from "node:path";
import { type TestContext, test } from "node:test";
import { credentials, type ServiceError, status } from "@grpc/grpc-js";
import { createDeviceAllocations } from "../../../src/devices/allocations.ts";
import { allocatableDevices, podResourcesOf } from "../../../src/devices/pod-resources-server.ts";
import { createInventory } from "../../../src/devices/inventory.ts";
import { Device } from "../../../src/gen/device-plugin.ts";
import {
  type AllocatableResourcesResponse,
  type GetPodResourcesResponse,
  type ListPodResourcesResponse,
  PodResourcesListerClient,
} from "../../../src/gen/pod-resources.ts";
import {
  type ListPodResourcesResponse as AlphaResponse,
  PodResourcesListerClient as AlphaClient,
} from "../../../src/gen/pod-resources-alpha.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { aContainer } from "../../fakes/pods.ts";
import { waitFor } from "../../harness/wait.ts";
import { allocatorOf, asking, resource, rig, signal } from "./rig.ts";

const until = (what: string, poll: () => boolean) => waitFor(what, poll, { everyMs: 5, timeoutMs: 20_000 });

/** A call as a promise. */
function answer<Response>(call: (reply: (error: ServiceError | null, response: Response) => void) => unknown) {
  return new Promise<Response>((resolve, reject) =>
    call((error, response) => (error ? reject(error) : resolve(response))),
  );
}

/** Node with three devices, and a PodResources client. */
async function monitored(t: TestContext) {
  const node = await rig(t);
  const plugin = await node.plugin({ devices: ["a", "b", "c"] });
  await plugin.register();
  await until("the devices", () => node.shown() === "3/3");
  await until("the socket", () => existsSync(node.monitors));
  const clients = [PodResourcesListerClient, AlphaClient].map(
    (Client) => new Client(`unix://${node.monitors}`, credentials.createInsecure()),
  );
  t.after(() => clients.forEach((client) => client.close()));
  const [client, alpha] = clients as [PodResourcesListerClient, AlphaClient];
  const list = () => answer<ListPodResourcesResponse>((reply) => client.list({}, reply));
  return { node, plugin, client, alpha, list };
}

test("lists the devices of active pods' containers", async (t) => {
  const { node, client, alpha, list } = await monitored(t);
  const sidecar = { ...aContainer("beside"), restartPolicy: "Always" };
  const pod = asking(2);
  pod.spec.initContainers = [aContainer("first"), sidecar];
  const ended = { ...asking(0, "uid-2"), status: { phase: "Succeeded" as const } };
  node.pods.push(pod, ended);
  assert.equal(await allocatorOf(node).allocate(pod, [], signal), undefined);
  const device = (id: string) => ({ resourceName: resource, deviceIds: [id], topology: undefined });
  const nothing = { cpuIds: [], memory: [], dynamicResources: [] };
  const { namespace, name } = pod.metadata;
  const whole = {
    name,
    namespace,
    containers: [
      { name: "beside", devices: [], ...nothing },
      { name: "c", devices: [device("a"), device("b")], ...nothing },
    ],
  };
  assert.deepEqual((await list()).podResources, [whole]);
  const get = (podName: string) =>
    answer<GetPodResourcesResponse>((reply) => client.get({ podName, podNamespace: namespace }, reply));
  assert.deepEqual((await get(name)).podResources, whole);
  await assert.rejects(get("nobody"), {
    code: status.UNKNOWN,
    details: `pod nobody in namespace ${namespace} not found`,
  });
  const older = await answer<AlphaResponse>((reply) => alpha.list({}, reply));
  assert.equal(older.podResources.length, 2, "ended ones, too");
  assert.deepEqual(older.podResources[0]?.containers, [
    {
      name: "c",
      devices: ["a", "b"].map((id) => ({ resourceName: resource, deviceIds: [id] })),
    },
  ]);
});

test("lists healthy allocatable devices by NUMA node, but no CPUs", async (t) => {
  const { client } = await monitored(t);
  const { devices, cpuIds } = await answer<AllocatableResourcesResponse>((reply) =>
    client.getAllocatableResources({}, reply),
  );
  assert.deepEqual(
    devices.flatMap(({ deviceIds }) => deviceIds),
    ["a", "b", "c"],
  );
  assert.deepEqual(cpuIds, []);
  const inventory = createInventory({ clock: fakeClock() });
  inventory.setDevices("test.device/nic", [
    Device.fromPartial({ ID: "wide", health: "Healthy", topology: { nodes: [{ ID: 0 }, { ID: 1 }] } }),
    Device.fromPartial({ ID: "ill", health: "Unhealthy", topology: { nodes: [{ ID: 0 }] } }),
  ]);
  assert.deepEqual(
    allocatableDevices(inventory).map(({ deviceIds, topology }) => [deviceIds, topology?.nodes]),
    [0n, 1n].map((ID) => [["wide"], [{ ID }]]),
  );
});

test("lists the memory of containers by NUMA node", () => {
  const memory = {
    memoryOf: (_uid: string, name: string) => (name === "c" ? [{ type: "memory", bytes: 2 ** 30, nodes: 0b101n }] : []),
    allocatableMemory: () => [],
  };
  const { containers } = podResourcesOf(
    { ...asking(0), spec: { containers: [aContainer("c"), aContainer("other")] } },
    { allocations: createDeviceAllocations(), memory },
  );
  assert.deepEqual(
    containers.map((one) => one.memory),
    [[{ memoryType: "memory", size: 2n ** 30n, topology: { nodes: [{ ID: 0n }, { ID: 2n }] } }], []],
  );
});

test("lists the exclusive CPUs of containers in order", () => {
  const cpus = {
    exclusiveCpus: (uid: string, name: string) => new Set(uid === "uid-1" && name === "c" ? [3, 1] : []),
    allocatableCpus: () => new Set([1, 2, 3]),
  };
  const { containers } = podResourcesOf(
    { ...asking(0), spec: { containers: [aContainer("c"), aContainer("other")] } },
    { allocations: createDeviceAllocations(), cpus },
  );
  assert.deepEqual(
    containers.map(({ name, cpuIds }) => [name, cpuIds]),
    [
      ["c", [1n, 3n]],
      ["other", []],
    ],
  );
});

test("rejects calls above the rate limit", async (t) => {
  const { list } = await monitored(t);
  const outcomes = await Promise.allSettled(Array.from({ length: 60 }, list));
  const refused = outcomes.filter(({ status: end }) => end === "rejected") as readonly PromiseRejectedResult[];
  assert.ok(refused.length > 0 && refused.length < 60, `${refused.length} of 60`);
  for (const { reason } of refused) assert.equal((reason as ServiceError).code, status.RESOURCE_EXHAUSTED);
});

test("replaces a stale socket, in a directory owned by root", async (t) => {
  const { node, list } = await monitored(t);
  assert.equal(statSync(dirname(node.monitors)).mode & 0o777, 0o750);
  assert.ok(await list());
  await node.stop();
  writeFileSync(node.monitors, "");
  const next = await node.restarted();
  await until("the next agent's socket", () => existsSync(next.monitors) && statSync(next.monitors).isSocket());
});
