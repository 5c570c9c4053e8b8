import assert from "node:assert/strict";
import { test } from "node:test";
import { createDeviceHealthRecords } from "../../../src/dra/device-health.ts";
import { DeviceHealth, HealthStatus } from "../../../src/gen/dra-health.ts";
import { fakeClock } from "../../fakes/clock.ts";

const driver = "gpu.example.com";
const id = (deviceName: string) => ({ poolName: "pool", deviceName });
const report = (deviceName: string, health: HealthStatus, more: { message?: string; timeoutSeconds?: bigint } = {}) =>
  DeviceHealth.fromPartial({
    device: id(deviceName),
    health,
    message: more.message ?? "",
    healthCheckTimeoutSeconds: more.timeoutSeconds ?? 0n,
  });
const { HEALTHY, UNHEALTHY } = HealthStatus;

function records() {
  const clock = fakeClock();
  const health = createDeviceHealthRecords(clock);
  const changed = (devices: readonly DeviceHealth[]) =>
    health.update(driver, devices).map(({ deviceName }) => deviceName);
  const get = (deviceName: string) => health.get(driver, id(deviceName));
  return { clock, health, changed, get };
}

test("a report counts as a change of a device only if its health or message differs", () => {
  const { changed, get } = records();
  assert.deepEqual(get("a"), { health: "Unknown", message: "" });
  assert.deepEqual(changed([report("a", HEALTHY), report("b", HEALTHY)]), ["a", "b"]);
  assert.deepEqual(changed([report("a", HEALTHY), report("b", UNHEALTHY, { message: "hot" })]), ["b"]);
  const { health, message } = get("b");
  assert.deepEqual([health, message, get("a").health], ["Unhealthy", "hot", "Healthy"]);
  assert.deepEqual(changed([report("a", HEALTHY), report("b", UNHEALTHY, { message: "cold" })]), ["b"]);
});

test("a report expires after 30 seconds, or after the driver's timeout", async () => {
  const { clock, changed, get } = records();
  changed([
    report("a", HEALTHY),
    report("b", HEALTHY, { timeoutSeconds: 60n }),
    report("c", HEALTHY, { timeoutSeconds: -1n }),
  ]);
  await clock.advance(30_001);
  assert.deepEqual([get("a").health, get("b").health, get("c").health], ["Unknown", "Healthy", "Unknown"]);
  await clock.advance(30_000);
  assert.equal(get("b").health, "Unknown");
});

test("the health of a device that is no longer reported becomes unknown once its last report expires", async () => {
  const { clock, changed, get } = records();
  changed([report("a", HEALTHY), report("b", HEALTHY)]);
  assert.deepEqual([changed([report("a", HEALTHY)]), get("b").health], [[], "Healthy"]);
  await clock.advance(30_001);
  assert.deepEqual([changed([report("a", HEALTHY)]), get("b").health], [["b"], "Unknown"]);
  assert.deepEqual(changed([report("a", HEALTHY)]), []);
});

test("the health of all devices becomes unknown when their driver is gone", () => {
  const { health, changed, get } = records();
  changed([report("a", HEALTHY)]);
  assert.deepEqual(health.remove("nic.example.com"), []);
  assert.equal(health.remove(driver).length, 1);
  assert.equal(get("a").health, "Unknown");
});

test("cuts a long message to at most 1,024 bytes, between characters", () => {
  const { changed, get } = records();
  changed([
    report("a", UNHEALTHY, { message: "ä".repeat(600) }),
    report("b", UNHEALTHY, { message: "x".repeat(1024) }),
  ]);
  const { message } = get("a");
  assert.equal(message, `${"ä".repeat(510)}...`);
  assert.equal(get("b").message.length, 1024);
});

test("keeps the health of at most 10,000 devices of a driver", () => {
  const { health, changed } = records();
  const many = (prefix: string) =>
    Array.from({ length: 12_000 }, (_, index) => report(`${prefix}${index}`, HEALTHY, { timeoutSeconds: 2n ** 40n }));
  assert.equal(changed(many("a")).length, 10_000);
  changed(many("b"));
  assert.equal(health.remove(driver).length, 10_000);
});
