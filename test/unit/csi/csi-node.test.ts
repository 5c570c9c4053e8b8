import assert from "node:assert/strict";
import { test } from "node:test";
import { createCsiNodes } from "../../../src/csi/csi-node.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { systemClock } from "../../../src/lib/clock.ts";
import { apiServer } from "./api.ts";
import { topologyRule } from "../../../src/csi/topology.ts";

const { signal } = new AbortController();
const facts = { nodeID: "id-1", maxVolumes: 3n, topology: { rack: "r1", zone: "a" } };
const idsAnnotation = "csi.volume.kubernetes.io/nodeid";

/** The objects of a node with an initialized CSINode. */
async function initialized() {
  const api = apiServer();
  const nodes = createCsiNodes({
    client: api.client,
    nodeName: "n",
    mayLabel: topologyRule(["zone", "rack"]),
    clock: systemClock(),
  });
  await nodes.initialize(signal);
  return { api, nodes };
}

test("creates the CSINode, with the Node as its owner", async () => {
  const { api } = await initialized();
  assert.deepEqual(api.csiNode?.metadata.ownerReferences, [{ apiVersion: "v1", kind: "Node", name: "n", uid: "u1" }]);
  assert.match(
    api.csiNode?.metadata.annotations?.["storage.alpha.kubernetes.io/migrated-plugins"] ?? "",
    /^kubernetes\.io\/aws-ebs,.*kubernetes\.io\/vsphere-volume$/,
  );
  assert.deepEqual(api.csiNode?.spec.drivers, []);
});

test("replaces the CSINode of an earlier Node, but keeps the drivers of its own CSINode", async () => {
  const { api, nodes } = await initialized();
  await nodes.install("d", facts, signal);
  await nodes.initialize(signal);
  assert.equal(api.csiNode?.spec.drivers?.length, 1);
  api.node = { metadata: { ...api.node.metadata, uid: "u2" } };
  await nodes.initialize(signal);
  assert.equal(api.csiNode?.metadata.ownerReferences?.[0]?.uid, "u2");
  assert.deepEqual(api.csiNode?.spec.drivers, []);
});

test("adds a driver to CSINode and Node once, and removes it from both", async () => {
  const { api, nodes } = await initialized();
  await nodes.install("d", facts, signal);
  const shown = { name: "d", nodeID: "id-1", topologyKeys: ["rack", "zone"], allocatable: { count: 3 } };
  assert.deepEqual(api.csiNode?.spec.drivers, [shown]);
  assert.deepEqual(api.node.metadata.labels, { zone: "a", rack: "r1" });
  const writes = () => api.client.calls.filter(({ verb }) => verb !== "get").length;
  const before = writes();
  await nodes.install("d", facts, signal);
  assert.equal(writes(), before, "unchanged facts are not written again");
  await nodes.install("c", { nodeID: "id-2", maxVolumes: 0n, topology: {} }, signal);
  assert.equal(api.node.metadata.annotations?.[idsAnnotation], '{"c":"id-2","d":"id-1"}');
  assert.deepEqual(api.csiNode?.spec.drivers, [shown, { name: "c", nodeID: "id-2", topologyKeys: [] }]);
  await nodes.uninstall("d", signal);
  await nodes.uninstall("c", signal);
  assert.deepEqual(api.csiNode?.spec.drivers, []);
  assert.equal(api.node.metadata.annotations?.[idsAnnotation], undefined);
  assert.deepEqual(api.node.metadata.labels, { zone: "a" }, "labels that a driver brought go with it");
});

test("caps the volume limit at the maximum value of the field", async () => {
  const { api, nodes } = await initialized();
  await nodes.install("d", { ...facts, maxVolumes: 1n << 40n }, signal);
  assert.equal(api.csiNode?.spec.drivers?.[0]?.allocatable?.count, 2 ** 31 - 1);
});

test("retries transient failures, and reports an error after four attempts", async () => {
  const { api, nodes } = await initialized();
  api.failures.push(new CodedError("conflict", "changed meanwhile"));
  await nodes.install("d", facts, signal);
  assert.equal(api.csiNode?.spec.drivers?.length, 1);
  api.failures.push(...Array.from({ length: 4 }, () => new CodedError("unavailable", "no answer")));
  await assert.rejects(nodes.install("d", facts, signal), {
    message:
      "error updating Node object with CSI driver node info: error updating node: timed out waiting for the condition; caused by: no answer",
  });
});

test("rejects a topology that conflicts with the Node's labels, and a driver that reports no node ID", async () => {
  const { nodes } = await initialized();
  await assert.rejects(nodes.install("d", { ...facts, topology: { zone: "b" } }, signal), {
    message:
      'error updating Node object with CSI driver node info: error updating node: timed out waiting for the condition; caused by: detected topology value collision: driver reported "zone":"b" but existing label is "zone":"a"',
  });
  await assert.rejects(nodes.install("d", { ...facts, nodeID: "" }, signal), {
    message: "error adding CSI driver node info: driverNodeID must not be empty",
  });
});

test("removes a label with the last driver that uses it, but never a label that existed before", async () => {
  const { api, nodes } = await initialized();
  await nodes.install("d", facts, signal);
  await nodes.install("c", { ...facts, nodeID: "id-2" }, signal);
  await nodes.uninstall("d", signal);
  assert.deepEqual(api.node.metadata.labels, { zone: "a", rack: "r1" });
  await nodes.uninstall("c", signal);
  assert.deepEqual(api.node.metadata.labels, { zone: "a" });
  assert.deepEqual(api.node.metadata.annotations, {});
});

test("omits topology keys that the driver may not set, from both CSINode and Node", async () => {
  const { api, nodes } = await initialized();
  api.drivers.add("disk.example.com");
  const topology = {
    zone: "a",
    tier: "payments",
    "team.example/secure": "true",
    "topology.disk.example.com/rack": "r1",
  };
  const shown = await nodes.install("disk.example.com", { ...facts, topology }, signal);
  assert.deepEqual(shown, { hasCSIDriver: true, omittedKeys: ["tier", "team.example/secure"] });
  assert.deepEqual(api.node.metadata.labels, { zone: "a", "topology.disk.example.com/rack": "r1" });
  const keys = ["topology.disk.example.com/rack", "zone"];
  assert.deepEqual(api.csiNode?.spec.drivers?.[0]?.topologyKeys, keys);
  await nodes.update("disk.example.com", { ...facts, topology }, signal);
  assert.deepEqual(api.csiNode?.spec.drivers?.[0]?.topologyKeys, keys);
});

test("adds a driver that has no CSIDriver object, but without topology", async () => {
  const { api, nodes } = await initialized();
  const topology = { "topology.x.example/rack": "r1" };
  const shown = await nodes.install("x.example", { ...facts, topology }, signal);
  assert.deepEqual(shown, { hasCSIDriver: false, omittedKeys: ["topology.x.example/rack"] });
  assert.deepEqual(api.node.metadata.labels, { zone: "a" });
  assert.equal(api.csiNode?.spec.drivers?.[0]?.nodeID, "id-1");
});

test("removes no label because of a manipulated driver-labels annotation", async () => {
  for (const text of ["{", "1", '{"d":"zone"}', '{"d":[1]}', "null"]) {
    const { api, nodes } = await initialized();
    api.node = { metadata: { ...api.node.metadata, annotations: { "graftlet.dev/driver-labels": text } } };
    await nodes.install("d", { ...facts, topology: {} }, signal);
    await nodes.uninstall("d", signal);
    assert.deepEqual(api.node.metadata.labels, { zone: "a" });
  }
});
