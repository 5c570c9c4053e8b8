import assert from "node:assert/strict";
import { test } from "node:test";
import { pageSizes, allPodsLimits, reservedLimits } from "../../../src/cgroups/allocatable-limits.ts";

const Gi = 2 ** 30;
const capacity = { cpus: 4, memoryBytes: 8 * Gi, maxPid: 4096, hugepages: { "hugepages-2Mi": Gi, "hugepages-1Gi": 0 } };
const nothing = { kubeReserved: {}, systemReserved: {} };

test("limits pods to the node's capacity minus reservations, but never to less than zero", () => {
  assert.deepEqual(allPodsLimits(capacity, nothing), {
    cpuShares: 4096,
    memoryBytes: 8 * Gi,
    pids: 4096,
    hugepages: { "2MB": Gi, "1GB": 0 },
  });
  const reserved = {
    kubeReserved: { cpu: "500m", memory: "1Gi", pid: "96" },
    systemReserved: { cpu: "1", memory: "512Mi", pid: "5k" },
  };
  assert.deepEqual(allPodsLimits(capacity, reserved), {
    cpuShares: 2560,
    memoryBytes: 6.5 * Gi,
    pids: 0,
    hugepages: { "2MB": Gi, "1GB": 0 },
  });
});

test("limits a reserved cgroup to the reservation, but only its CPU if only compressible resources are enforced", () => {
  const reserved = { cpu: "250m", memory: "1Gi", pid: "500" };
  const hugepages = { "2MB": 0, "1GB": 0 };
  assert.deepEqual(reservedLimits(reserved, capacity, false), {
    cpuShares: 256,
    memoryBytes: Gi,
    pids: 500,
    hugepages,
  });
  assert.deepEqual(reservedLimits(reserved, capacity, true), { cpuShares: 256 });
  assert.deepEqual(reservedLimits({ memory: "1Gi" }, capacity, false), { memoryBytes: Gi, hugepages });
  assert.deepEqual(pageSizes(capacity), ["2MB", "1GB"]);
});
