import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { numaNodes } from "../../../src/lib/numa-nodes.ts";
import { idleMachine } from "../../../src/memory-manager/machine-state.ts";
import { parseMemoryState, readMemoryState, writeMemoryState } from "../../../src/memory-manager/state-file.ts";
import { type MemoryState, allocateMemory } from "../../../src/memory-manager/static-policy.ts";
import { wholePod } from "../../../src/pod/pinned-resources.ts";
import { filesOf } from "../../fakes/files.ts";
import { never } from "../../fakes/signals.ts";
import { asking, gib, idle, machine, node, podOf } from "./machines.ts";
import { checkMemoryPolicy, restoredState } from "../../../src/memory-manager/open.ts";

const state: MemoryState = allocateMemory(idle(4, 4), podOf("uid", []), asking("main", "5Gi"));
const table = (total: number, systemReserved: number, reserved: number) => ({
  total,
  systemReserved,
  allocatable: total - systemReserved,
  reserved,
  free: total - systemReserved - reserved,
});
/** What a kubelet writes for the same. */
const kubelets = {
  policyName: "Static",
  machineState: {
    0: { numberOfAssignments: 1, memoryMap: { memory: table(4 * gib, gib, 3 * gib) }, cells: [0, 1] },
    1: { numberOfAssignments: 1, memoryMap: { memory: table(4 * gib, 0, 2 * gib) }, cells: [0, 1] },
  },
  entries: { uid: { main: [{ numaAffinity: [0, 1], type: "memory", size: 5 * gib }] } },
  checksum: 3256676543,
};

const files = { current: "/root/memory_manager_state", former: "/root/graftlet/memory.json" };

test("a state file is written as a kubelet writes it, and read back unchanged", async () => {
  const written: Record<string, string> = {};
  const fs = filesOf(written);
  await writeMemoryState(fs, "/root", state, never);
  assert.deepEqual({ [files.current]: JSON.parse(written[files.current] ?? "") }, { [files.current]: kubelets });
  const read = await readMemoryState(fs, "/root", silentLog(), never);
  assert.deepEqual(read, { file: files.current, policy: "Static", ...state });
  await writeMemoryState(fs, "/root", undefined, never);
  assert.deepEqual(written, {});
});

test("a state file of an earlier version is converted once", async () => {
  const written: Record<string, string> = { [files.former]: JSON.stringify({ version: 1, ...kubelets }) };
  const fs = filesOf(written);
  const read = await readMemoryState(fs, "/root", silentLog(), never);
  assert.deepEqual(read, { file: files.former, policy: "Static", ...state });
  await writeMemoryState(fs, "/root", state, never);
  assert.deepEqual(Object.keys(written), [files.current]);
});

test("the checksum equals the kubelet's for any number of nodes and blocks", () => {
  const full = { total: 4 * gib, systemReserved: gib, allocatable: 3 * gib, reserved: 3 * gib, free: 0 };
  const nodeOf = (id: number) => {
    return { numberOfAssignments: 1, memoryMap: { memory: full, "hugepages-2Mi": full }, cells: [0, id] };
  };
  const blocks = [
    { numaAffinity: [0, 1], type: "memory", size: 5 * gib },
    { numaAffinity: [0, 1], type: "hugepages-2Mi", size: 5 },
  ];
  const [machineState, entries] = [{ 1: nodeOf(1), 10: nodeOf(10), 2: nodeOf(2) }, { uid: { main: blocks, init: [] } }];
  assert.ok(parseMemoryState(JSON.stringify({ policyName: "Static", machineState, entries, checksum: 3940867278 })));
  const none = JSON.stringify({ policyName: "Static", machineState, entries, checksum: 1052817153 });
  assert.ok(parseMemoryState(none), "written with the feature gate PodLevelResourceManagers");
  const podEntries = { uid: { memoryBlocks: blocks } };
  const whole = parseMemoryState(
    JSON.stringify({ policyName: "Static", machineState, entries, podEntries, checksum: 2805886068 }),
  );
  assert.equal(whole?.assigned.get("uid")?.get(wholePod)?.length, 2);
});

test("the state of a kubelet with policy None is read", () => {
  const none = parseMemoryState('{"policyName":"None","machineState":{},"checksum":4236770233}');
  assert.deepEqual(none, { policy: "None", machine: new Map(), assigned: new Map() });
});

test("a state file in which no pod has memory counts as no state", async () => {
  const written: Record<string, string> = {};
  await writeMemoryState(filesOf(written), "/root", idle(4, 4), never);
  assert.equal(await readMemoryState(filesOf(written), "/root", silentLog(), never), undefined);
});

test("a corrupt file counts as no state", async () => {
  const text = JSON.stringify(kubelets);
  for (const torn of [text.slice(0, 100), text.replace(String(5 * gib), "5"), ""])
    assert.equal(
      await readMemoryState(filesOf({ [files.current]: torn }), "/root", silentLog(), never),
      undefined,
      torn,
    );
});

test("rejects a state with contradictory amounts", () => {
  const withBlock = (block: object) =>
    JSON.stringify({ ...kubelets, entries: { uid: { main: [block] } }, checksum: undefined });
  const [block] = kubelets.entries.uid.main;
  assert.ok(parseMemoryState(withBlock({ ...block })));
  for (const wrong of [{ size: -1 }, { size: 2 ** 60 }, { type: 1 }, { numaAffinity: [64] }, { numaAffinity: ["0"] }])
    assert.equal(parseMemoryState(withBlock({ ...block, ...wrong })), undefined, JSON.stringify(wrong));
  for (const text of ["", "[]", '{"policyName":1}', '{"policyName":"Static","machineState":{"x":{}}}'])
    assert.equal(parseMemoryState(text), undefined, text);
});

test("continues with a saved state that fits the machine, and creates a new one if the saved state is empty", () => {
  const saved = { file: "f", policy: "Static", ...state };
  assert.deepEqual(restoredState(machine(4, 4), saved), state);
  const empty = { file: "f", policy: "Static", machine: new Map(), assigned: new Map() };
  assert.deepEqual(restoredState(machine(4, 4), empty), idle(4, 4));
});

test("rejects a state of another policy or machine, in the kubelet's words", () => {
  const saved = { file: "f", policy: "Static", ...state };
  assert.throws(() => checkMemoryPolicy(saved, "None"), {
    message:
      'could not restore state from checkpoint: [memorymanager] configured policy "None" differs from state checkpoint policy "Static", please drain this node and delete the memory manager checkpoint file "f" before restarting Kubelet',
  });
  const refused = (idleOne: Parameters<typeof restoredState>[0], problem: string, more: Partial<MemoryState> = {}) =>
    assert.throws(() => restoredState(idleOne, { ...saved, ...more }), {
      message: `[memorymanager] ${problem}: please drain this node and delete the memory manager checkpoint file "f"`,
    });
  const different = "the expected machine state is different from the real one";
  refused(machine(4, 5), different);
  refused(machine(4, 4, 4), different);
  refused(machine(4, 4), different, { assigned: new Map() });
  const pages = idleMachine([node(0, 4, 1), node(1, 4)], new Map([[0, new Map([["memory", gib]])]]));
  refused(pages, different);
  refused(machine(4, 4), "machine state can not be empty when it has memory assignments", { machine: new Map() });
  const uses = (nodes: readonly number[], type: string) => ({
    assigned: new Map([["uid", new Map([["main", [{ nodes: numaNodes(nodes), type, bytes: 1 }]]])]]),
  });
  const where = "(pod: uid, container: main) the memory assignment uses";
  refused(machine(4, 4), `${where} the NUMA that does not exist`, uses([2], "memory"));
  refused(machine(4, 4), `${where} memory resource that does not exist`, uses([0], "hugepages-2Mi"));
});
