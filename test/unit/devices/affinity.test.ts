import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createDeviceAllocations } from "../../../src/devices/allocations.ts";
import { createInventory } from "../../../src/devices/inventory.ts";
import { ContainerAllocateResponse, type Device } from "../../../src/gen/device-plugin.ts";
import { numaNodes } from "../../../src/lib/numa-nodes.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { waitFor } from "../../harness/wait.ts";
import { shown } from "../topology/hints.ts";
import { type TestPod } from "../../fakes/pods.ts";
import { asking, resource, rig, signal, wanting } from "./rig.ts";
import { deviceHints } from "../../../src/devices/pod-allocator.ts";

/** Devices `a@0` of NUMA node 0, `b@0,1` of two nodes, or `c` of none. */
function device(text: string): Device {
  const [ID = "", nodes] = text.split("@");
  const topology = nodes === undefined ? undefined : { nodes: nodes.split(",").map((node) => ({ ID: BigInt(node) })) };
  return { ID, health: "Healthy", topology };
}

interface Given {
  readonly devices: readonly string[];
  readonly inUse?: readonly string[];
  /** Devices of the pod's own container. */
  readonly own?: readonly string[];
  readonly reusable?: readonly string[];
  readonly pod?: boolean;
}

function hintsOf(count: number, { devices, inUse = [], own = [], reusable = [], pod = false }: Given): string {
  const inventory = createInventory({ clock: fakeClock() });
  inventory.setDevices(resource, devices.map(device));
  const allocations = createDeviceAllocations();
  const response = ContainerAllocateResponse.create();
  const give = (uid: string, ids: readonly string[]) =>
    ids.length > 0 && allocations.set({ uid, container: "c", resource }, { devices: new Map([[-1, ids]]), response });
  give("other", inUse);
  give("uid-1", own);
  const of = asking(count);
  const input = { inventory, allocations, numaNodes: [0, 1], pod: of, reusable: new Map([[resource, reusable]]) };
  const hints = deviceHints(input, pod ? undefined : of.spec.containers[0]).get(resource);
  return hints ? hints.map(shown).join(" ") || "none" : "any";
}

test("hints NUMA nodes with enough free devices, and prefers as few nodes as possible", () => {
  const devices = ["a@0", "b@0", "c@1"];
  assert.equal(hintsOf(1, { devices }), "0+ 1+ 01");
  assert.equal(hintsOf(2, { devices }), "0+ 01");
  assert.equal(hintsOf(2, { devices, inUse: ["a"] }), "01", "a node alone would do if nothing used it");
  assert.equal(hintsOf(3, { devices, pod: true }), "01+");
  assert.equal(hintsOf(4, { devices }), "none");
  assert.equal(hintsOf(2, { devices: ["a@0,1", "b@1", "c"] }), "1+ 01", "a device of two nodes");
});

test("takes devices without NUMA nodes regardless of the hint, and ignores NUMA nodes that the machine does not have", () => {
  assert.equal(hintsOf(1, { devices: ["a", "b"] }), "any");
  assert.equal(hintsOf(1, { devices: ["a@0", "b@7"], inUse: ["a"] }), "none");
  assert.equal(hintsOf(1, { devices: ["a@0", "b@99999999999"] }), "0+");
});

test("hints the NUMA nodes of devices that a container already has or must reuse", () => {
  const devices = ["a@0", "b@0", "c@1"];
  assert.equal(hintsOf(1, { devices, own: ["c"] }), "1+ 01");
  assert.equal(hintsOf(2, { devices, own: ["c"] }), "none");
  assert.equal(hintsOf(1, { devices, own: ["c"], pod: true }), "1+ 01");
  assert.equal(hintsOf(1, { devices, inUse: ["c"], reusable: ["c"] }), "1+ 01");
});

/** A node with devices of two NUMA nodes and without, and a pod that is allocated on node 1. */
async function allocate(t: TestContext, pod: TestPod, prefer?: (ids: readonly string[]) => readonly string[]) {
  const node = await rig(t);
  const options = { getPreferredAllocationAvailable: prefer !== undefined };
  const plugin = await node.plugin({ devices: ["a@0", "n", "b@1", "c@1", "d@1"], options, ...(prefer && { prefer }) });
  await plugin.register();
  await waitFor("the devices", () => node.shown() === "5/5", { everyMs: 5 });
  const allocator = await node.devices.podAllocator?.(pod, [], signal);
  for (const container of [...(pod.spec.initContainers ?? []), ...pod.spec.containers])
    assert.equal(await allocator?.allocate(container, { nodes: numaNodes([1]), preferred: true }), undefined);
  const allocated = plugin.calls.flatMap((call) => (call.startsWith("Allocate ") ? [call.slice(9)] : []));
  const asked = plugin.preferences.map(({ containerRequests: [request] }) =>
    [request?.availableDeviceIDs.join(""), request?.mustIncludeDeviceIDs.join("")].join(" with "),
  );
  return { allocated, asked };
}

test("takes devices on the hint's NUMA nodes first, then on other nodes, and devices without a node last", async (t) => {
  assert.deepEqual((await allocate(t, asking(2))).allocated, ["b,c"]);
  assert.deepEqual((await allocate(t, asking(4))).allocated, ["b,c,d,a"]);
  assert.deepEqual((await allocate(t, asking(5))).allocated, ["b,c,d,a,n"]);
});

test("lets the plugin choose among the devices on the hint's nodes, or among all others if the container needs more", async (t) => {
  const last = (ids: readonly string[]) => ids.toReversed();
  assert.deepEqual(await allocate(t, asking(2), last), { allocated: ["d,c"], asked: ["bcd with "] });
  assert.deepEqual(await allocate(t, asking(3), last), { allocated: ["b,c,d"], asked: [] });
  assert.deepEqual(await allocate(t, asking(4), () => ["n"]), { allocated: ["b,c,d,n"], asked: ["anbcd with bcd"] });
});

test("a container reuses the devices of an earlier init container, regardless of their NUMA node", async (t) => {
  const pod = asking(2, "uid-1", { initContainers: [wanting("i", 1)] });
  assert.deepEqual((await allocate(t, pod)).allocated, ["b", "b,c"]);
});
