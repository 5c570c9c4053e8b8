import assert from "node:assert/strict";
import { test } from "node:test";
import { nodeAllocatable, nodeCapacity, overReserved } from "../../../src/node/capacity.ts";

const gi = 1024 ** 3;
const facts = { cpus: 4, memoryBytes: 8 * gi, hugepages: {} };
const nothing = { kubeReserved: {}, systemReserved: {}, evictionHard: {} };

test("formats capacity as the kubelet does", () => {
  assert.deepEqual(nodeCapacity({ facts, storageBytes: 100 * gi, maxPods: 110, podsPerCore: 0 }), {
    cpu: "4",
    memory: "8388608Ki",
    "ephemeral-storage": "104857600Ki",
    pods: "110",
  });
  const small = nodeCapacity({
    facts: { ...facts, hugepages: { "hugepages-2Mi": 1024 * 1024 * 4 } },
    storageBytes: gi,
    maxPods: 110,
    podsPerCore: 10,
  });
  assert.deepEqual([small["pods"], small["hugepages-2Mi"]], ["40", "4096Ki"]);
});

test("a node has no ephemeral storage, regardless of reservations, if local storage isolation is off", () => {
  const capacity = nodeCapacity({ facts, storageBytes: undefined, maxPods: 110, podsPerCore: 0 });
  const reserved = {
    ...nothing,
    kubeReserved: { "ephemeral-storage": "1Gi" },
    evictionHard: { "nodefs.available": "10%" },
  };
  assert.deepEqual(Object.keys(capacity), ["cpu", "memory", "pods"]);
  assert.deepEqual(Object.keys(nodeAllocatable(capacity, reserved)), ["cpu", "memory", "pods"]);
  assert.equal(overReserved(capacity, reserved), undefined);
});

test("allocatable is capacity less reservations and hard eviction thresholds", () => {
  const capacity = nodeCapacity({ facts, storageBytes: 100 * gi, maxPods: 110, podsPerCore: 0 });
  const left = nodeAllocatable(capacity, {
    kubeReserved: { cpu: "100m", memory: "1Gi", "ephemeral-storage": "1Gi" },
    systemReserved: { cpu: "1", memory: "100Mi" },
    evictionHard: { "memory.available": "100Mi", "nodefs.available": "10%" },
  });
  assert.deepEqual(left, {
    cpu: "2900m",
    memory: `${8388608 - 1048576 - 204800}Ki`,
    // As in the kubelet, a percentage has single precision.
    "ephemeral-storage": "95563022176",
    pods: "110",
  });
});

test("without reservations, everything is allocatable, and no amount becomes negative", () => {
  const capacity = nodeCapacity({ facts, storageBytes: gi, maxPods: 110, podsPerCore: 0 });
  assert.deepEqual(nodeAllocatable(capacity, nothing), {
    cpu: "4",
    memory: "8388608Ki",
    "ephemeral-storage": `${gi / 1024}Ki`,
    pods: "110",
  });
  const left = nodeAllocatable(capacity, { ...nothing, kubeReserved: { cpu: "5", memory: "9Gi" } });
  assert.deepEqual([left["cpu"], left["memory"]], ["0", "0"]);
});

test("subtracts huge pages from allocatable memory", () => {
  const capacity = nodeCapacity({
    facts: { ...facts, hugepages: { "hugepages-1Gi": 2 * gi } },
    storageBytes: gi,
    maxPods: 110,
    podsPerCore: 0,
  });
  assert.equal(nodeAllocatable(capacity, nothing)["memory"], `${6 * 1024 * 1024}Ki`);
});

test("reports reservations above the capacity with both amounts", () => {
  const capacity = nodeCapacity({ facts, storageBytes: 100 * gi, maxPods: 110, podsPerCore: 0 });
  assert.equal(overReserved(capacity, nothing), undefined);
  assert.equal(overReserved(capacity, { ...nothing, kubeReserved: { cpu: "4" } }), undefined);
  const reserved = {
    kubeReserved: { cpu: "3500m", memory: "4Gi" },
    systemReserved: { cpu: "600m", memory: "4Gi" },
    evictionHard: { "memory.available": "1Gi", "nodefs.available": "10%" },
  };
  assert.equal(
    overReserved(capacity, reserved),
    'invalid Node Allocatable configuration. Resource "cpu" has a reservation of 4100m but capacity of 4. Expected capacity >= reservation. Resource "memory" has a reservation of 9Gi but capacity of 8388608Ki. Expected capacity >= reservation.',
  );
});
