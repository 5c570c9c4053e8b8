import assert from "node:assert/strict";
import { test } from "node:test";
import { createInventory } from "../../../src/devices/inventory.ts";
import type { DevicePlugin } from "../../../src/devices/plugin.ts";
import type { Device } from "../../../src/gen/device-plugin.ts";
import { fakeClock } from "../../fakes/clock.ts";

const device = (ID: string, health = "Healthy"): Device => ({ ID, health, topology: undefined });
const name = "test.device/gpu";
const minute = 60_000;

/** A plugin that is only compared by identity. */
const aPlugin = (): DevicePlugin => ({
  options: { preStartRequired: false, getPreferredAllocationAvailable: false },
  async *devices() {},
  allocate: () => Promise.reject(new Error("not expected")),
  preferredAllocation: async () => [],
  preStart: async () => {},
  close() {},
});

function rig() {
  const clock = fakeClock();
  const inventory = createInventory({ clock });
  const shown = () => {
    const { capacity, allocatable, hasExpired } = inventory.amounts();
    return `${allocatable[name] ?? "-"}/${capacity[name] ?? "-"}${hasExpired ? " given up" : ""}`;
  };
  return { clock, inventory, shown };
}

test("a resource keeps its capacity for five minutes after its plugin is lost, then drops to 0", async () => {
  const { clock, inventory, shown } = rig();
  const plugin = aPlugin();
  inventory.setPlugin(name, plugin);
  assert.equal(shown(), "-/-", "the plugin has not listed its devices yet");
  assert.deepEqual(inventory.setDevices(name, [device("a"), device("b", "Unhealthy")]), ["a", "b"]);
  assert.equal(shown(), "1/2");
  inventory.markStopped(name, plugin);
  assert.equal(shown(), "0/2");
  await clock.advance(5 * minute);
  assert.equal(shown(), "0/2");
  await clock.advance(1);
  assert.equal(shown(), "0/0 given up");
  assert.equal(shown(), "0/0");
  assert.ok(!inventory.hasDevices(name));
  assert.deepEqual(inventory.registered(), new Map());

  inventory.setPlugin(name, aPlugin());
  assert.equal(shown(), "0/0");
  inventory.setDevices(name, [device("a")]);
  assert.equal(shown(), "1/1");
});

test("a plugin that returns in time keeps its capacity", async () => {
  const { clock, inventory, shown } = rig();
  const plugin = aPlugin();
  inventory.setPlugin(name, plugin);
  inventory.setDevices(name, [device("a")]);
  inventory.markStopped(name, plugin);
  await clock.advance(4 * minute);
  inventory.setPlugin(name, aPlugin());
  assert.equal(shown(), "0/1", "it has yet to say which devices there are");
  await clock.advance(10 * minute);
  inventory.setDevices(name, [device("a")]);
  assert.equal(shown(), "1/1");
  inventory.markStopped(name, plugin);
  assert.equal(shown(), "1/1", "the one before it has long gone");
});

test("reports restored resources with capacity 0 until their plugin registers, for at most five minutes", async () => {
  const { clock, inventory, shown } = rig();
  inventory.restore([name]);
  assert.equal(shown(), "0/0");
  assert.ok(inventory.hasDevices(name));
  assert.deepEqual(inventory.endpoint(name), { plugin: undefined, stopped: true });
  await clock.advance(5 * minute + 1);
  assert.equal(shown(), "0/0 given up");
  assert.equal(inventory.endpoint(name), undefined);
});

test("a device list returns new devices and changes of health", () => {
  const { inventory } = rig();
  inventory.setPlugin(name, aPlugin());
  inventory.setDevices(name, [device("a"), device("b"), device("c")]);
  assert.deepEqual(inventory.setDevices(name, [device("a"), device("b", "Unhealthy")]), ["b"]);
  assert.deepEqual(inventory.setDevices(name, [device("a"), device("b", "Unhealthy"), device("c")]), ["c"]);
});
