import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { localHost } from "../../../providers/local/host.ts";
import { type CsiNodes, createCsiNodes } from "../../../src/csi/csi-node.ts";
import { createCsiDriverRegistry } from "../../../src/csi/driver-registry.ts";
import { NodeServiceCapability_RPC_Type as Capability } from "../../../src/gen/csi.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { startTestDriver } from "../../harness/csi-driver.ts";
import { silent } from "../api/fake-client.ts";
import { apiServer } from "./api.ts";
import { topologyRule } from "../../../src/csi/topology.ts";

const { signal } = new AbortController();

/** Driver registry of a node, and a driver that serves on a socket. */
async function rig(t: TestContext, around: (nodes: CsiNodes) => CsiNodes = (nodes) => nodes) {
  const rootDir = mkdtempSync(join(tmpdir(), "graftlet-csi-"));
  const clock = systemClock();
  const api = apiServer();
  const ofNode = createCsiNodes({
    client: api.client,
    nodeName: "n",
    mayLabel: topologyRule(["zone", "rack"]),
    clock,
  });
  await ofNode.initialize(signal);
  const csiNodes = around(ofNode);
  const counted: string[] = [];
  const drivers = createCsiDriverRegistry({
    host: localHost({ clock }),
    client: api.client,
    csiNodes,
    measures: { called: (name, method, code) => void counted.push(`${name} ${method} ${code}`) },
    clock,
    log: silent,
  });
  const info = { maxVolumesPerNode: 7n };
  const driver = await startTestDriver({ name: "d", rootDir, disks: rootDir, run: async () => undefined, info });
  t.after(() => {
    driver.stop();
    rmSync(rootDir, { recursive: true, force: true });
  });
  const plugin = { name: "d", endpoint: join(rootDir, "plugins/d/csi.sock"), versions: ["1.0.0"] };
  return { api, drivers, driver, info, counted, plugin };
}

const unknown = { message: "driver name d not found in the list of registered CSI drivers" };

test("queries a driver when it registers, adds it to the node, and can call it until it is deregistered", async (t) => {
  const { api, drivers, driver, plugin } = await rig(t);
  assert.throws(() => drivers.driver("d"), unknown);
  drivers.handler.validate(plugin);
  await drivers.handler.register(plugin, signal);
  assert.equal(api.csiNode?.spec.drivers?.[0]?.nodeID, "d-node");
  assert.deepEqual([...drivers.facts().keys()], ["d"]);
  assert.deepEqual(await drivers.driver("d").capabilities(), new Set([Capability.STAGE_UNSTAGE_VOLUME]));
  await drivers.driver("d").unpublish({ volumeId: "v", targetPath: "/nowhere" });
  assert.deepEqual(driver.methods(), ["NodeUnpublishVolume"]);
  await drivers.handler.deregister(plugin, signal);
  assert.throws(() => drivers.driver("d"), unknown);
  assert.deepEqual(api.csiNode?.spec.drivers, []);
});

test("reports a failed call with the kubelet's message", async (t) => {
  const { drivers, driver, plugin } = await rig(t);
  await drivers.handler.register(plugin, signal);
  driver.fail("NodeUnpublishVolume", status.ABORTED, "busy");
  const call = () => drivers.driver("d").unpublish({ volumeId: "v", targetPath: "/nowhere" });
  await assert.rejects(call(), { code: "conflict", message: "rpc error: code = Aborted desc = busy" });
  driver.stop();
  await assert.rejects(call(), {
    code: "unavailable",
    message: `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix ${plugin.endpoint}: connect: no such file or directory"`,
  });
});

test("counts calls by method and status", async (t) => {
  const { drivers, driver, counted, plugin } = await rig(t);
  await drivers.handler.register(plugin, signal);
  const call = () => drivers.driver("d").unpublish({ volumeId: "v", targetPath: "/nowhere" });
  await call();
  driver.fail("NodeUnpublishVolume", status.ABORTED, "busy");
  await assert.rejects(call());
  driver.stop();
  await assert.rejects(call());
  const unpublish = "d /csi.v1.Node/NodeUnpublishVolume";
  const info = "d /csi.v1.Node/NodeGetInfo OK";
  assert.deepEqual(counted, [info, `${unpublish} OK`, `${unpublish} Aborted`, `${unpublish} Unavailable`]);
});

test("a refresh updates a changed volume limit on the CSINode", async (t) => {
  const { api, drivers, driver, info, plugin } = await rig(t);
  await drivers.handler.register(plugin, signal);
  info.maxVolumesPerNode = 9n;
  assert.equal(api.csiNode?.spec.drivers?.[0]?.allocatable?.count, 7);
  await drivers.refreshLimit("d", signal);
  assert.equal(api.csiNode?.spec.drivers?.[0]?.allocatable?.count, 9);
  assert.equal(drivers.facts().get("d")?.maxVolumes, 9n);
  driver.fail("NodeGetInfo", status.INTERNAL, "no idea");
  await assert.rejects(drivers.refreshLimit("d", signal), {
    message: 'failed to get NodeGetInfo from driver "d": rpc error: code = Internal desc = no idea',
  });
  await drivers.handler.deregister(plugin, signal);
  await assert.rejects(drivers.refreshLimit("d", signal), {
    message:
      'failed to create CSI client for driver "d": driver name d not found in the list of registered CSI drivers',
  });
});

test("rejects a driver whose NodeGetInfo fails", async (t) => {
  const { drivers, driver, plugin } = await rig(t);
  driver.fail("NodeGetInfo", status.INTERNAL, "no idea");
  await assert.rejects(drivers.handler.register(plugin, signal), {
    message: "rpc error: code = Internal desc = no idea",
  });
  assert.throws(() => drivers.driver("d"), unknown);
});

test("rejects unsupported versions, and a second driver of the same name unless it is newer", async (t) => {
  const { drivers, plugin } = await rig(t);
  const at = `validation failed for CSI Driver d at endpoint ${plugin.endpoint}: kubernetes.io/csi: ValidatePlugin for CSI driver "d" failed. `;
  assert.throws(() => drivers.handler.validate({ ...plugin, versions: [] }), {
    message: `${at}Plugin returned an empty list for supported versions`,
  });
  assert.throws(() => drivers.handler.validate({ ...plugin, versions: ["0.3.0"] }), {
    message: `${at}None of the versions specified ["0.3.0"] are supported. err=highest supported version reported is 0.3.0, must be v1.x`,
  });
  await drivers.handler.register(plugin, signal);
  assert.throws(() => drivers.handler.validate(plugin), {
    message: `${at}Another driver with the same name is already registered with a higher supported version: "1.0.0"`,
  });
  drivers.handler.validate({ ...plugin, versions: ["1.1.0"] });
});

test("does not add back a driver that is deregistered while its limit is being read", async (t) => {
  const gate = Promise.withResolvers<void>();
  let uninstalled = false;
  const { api, drivers, plugin } = await rig(t, (nodes) => ({
    ...nodes,
    async uninstall(driver, stop) {
      await nodes.uninstall(driver, stop);
      uninstalled = true;
    },
    async update(driver, facts, stop) {
      await gate.promise;
      await nodes.update(driver, facts, stop);
    },
  }));
  await drivers.handler.register(plugin, signal);
  const refreshed = drivers.refreshLimit("d", signal).catch(() => undefined);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const gone = drivers.handler.deregister(plugin, signal);
  await new Promise((resolve) => setTimeout(resolve, 100));
  assert.equal(uninstalled, false, "one after the other");
  gate.resolve();
  await Promise.all([refreshed, gone]);
  assert.deepEqual(api.csiNode?.spec.drivers, []);
});
