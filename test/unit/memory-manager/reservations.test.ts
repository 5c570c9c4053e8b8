import assert from "node:assert/strict";
import { test } from "node:test";
import { idleMachine } from "../../../src/memory-manager/machine-state.ts";
import { gib, node } from "./machines.ts";
import { type MemoryReservations, systemReservedOf } from "../../../src/memory-manager/open.ts";

const topology = [node(0, 4, 1), node(1, 4)];
const reservations: MemoryReservations = {
  reservedMemory: [
    { numaNode: 0, limits: { memory: "1Gi" } },
    { numaNode: 1, limits: { memory: "612Mi" } },
  ],
  kubeReserved: { memory: "512Mi" },
  systemReserved: { memory: "1Gi" },
  evictionHard: "100Mi",
};
const reserve = (more: Partial<MemoryReservations>) => systemReservedOf({ ...reservations, ...more }, topology);

test("subtracts reserved memory and huge pages from the NUMA node's allocatable amounts", () => {
  const [first, second] = [...idleMachine(topology, reserve({})).values()].map(({ tables }) =>
    Object.fromEntries([...tables].map(([type, { allocatable, free, total }]) => [type, [total, allocatable, free]])),
  );
  assert.deepEqual(first, { memory: [4 * gib, 2 * gib, 2 * gib], "hugepages-2Mi": [gib, gib, gib] });
  assert.deepEqual(second, { memory: [4 * gib, 3484 * 2 ** 20, 3484 * 2 ** 20] });
});

test("percentages in hard eviction thresholds refer to the machine's memory", () => {
  const limits = { memory: String(1.5 * gib + 0.5 * gib) };
  const found = reserve({ reservedMemory: [{ numaNode: 1, limits }], evictionHard: "6.25%" });
  assert.deepEqual(found, new Map([[1, new Map([["memory", 2 * gib]])]]));
});

test("rejects reservations that do not add up to the node's total reservation, in the kubelet's words", () => {
  const refused = (more: Partial<MemoryReservations>, message: string) =>
    assert.throws(() => reserve(more), { message });
  const sum = (reserved: string, type: string, expected: string) =>
    `the total amount "${reserved}" of type "${type}" is not equal to the value "${expected}" determined by Node Allocatable feature`;
  refused({ kubeReserved: {} }, sum("1636Mi", "memory", "1124Mi"));
  refused({ reservedMemory: [] }, sum("0", "memory", "1636Mi"));
  const pages = { numaNode: 0, limits: { "hugepages-2Mi": "4Mi" } };
  refused({ reservedMemory: [...reservations.reservedMemory, pages] }, sum("4Mi", "hugepages-2Mi", "0"));
  refused(
    { reservedMemory: [{ numaNode: 2, limits: { memory: "1Gi" } }] },
    "the reserved memory configuration references a NUMA node 2 that does not exist on this machine",
  );
  refused(
    { reservedMemory: [], kubeReserved: {}, systemReserved: {}, evictionHard: "0" },
    "[memorymanager] you should specify the system reserved memory",
  );
});

test("rejects a reservation that exceeds a NUMA node's memory", () => {
  const limits = { memory: "5Gi" };
  const all = {
    reservedMemory: [{ numaNode: 1, limits }],
    kubeReserved: {},
    systemReserved: limits,
    evictionHard: "0",
  };
  assert.throws(() => idleMachine(topology, reserve(all)), /reserves more of type "memory" on NUMA node 1 than it has/);
});
