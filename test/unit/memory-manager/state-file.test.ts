import assert from "node:assert/strict";
import { test } from "node:test";
import { silentLog } from "../../../src/lib/log.ts";
import { numaNodes } from "../../../src/lib/numa-nodes.ts";
import { checkPolicy, restoredState } from "../../../src/memory-manager/check-state.ts";
import { idleMachine } from "../../../src/memory-manager/machine-state.ts";
import { parseKubeletState, parseState, readState, writeState } from "../../../src/memory-manager/state-file.ts";
import { type MemoryState, allocateMemory } from "../../../src/memory-manager/static-policy.ts";
import { filesOf } from "../../fakes/files.ts";
import { never } from "../../fakes/signals.ts";
import { asking, gib, idle, machine, node, podOf } from "./machines.ts";

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
  checksum: 1,
};

test("a state file that was written is read back unchanged", async () => {
  const fs = filesOf({});
  await writeState(fs, "/root", state, never);
  const read = await readState(fs, "/root", silentLog(), never);
  assert.deepEqual(read, { file: "/root/graftlet/memory.json", policy: "Static", ...state });
});

test("takes over a kubelet's state unless graftlet has a state of its own with pods", async () => {
  const fs = filesOf({ "/root/memory_manager_state": JSON.stringify(kubelets) });
  const read = () => readState(fs, "/root", silentLog(), never);
  assert.deepEqual(await read(), { file: "/root/memory_manager_state", policy: "Static", ...state });
  await writeState(fs, "/root", { ...state, assigned: new Map([...state.assigned].slice(0, 1)) }, never);
  assert.equal((await read())?.file, "/root/graftlet/memory.json");
  await writeState(fs, "/root", idle(4, 4), never);
  assert.equal(await read(), undefined);
});

test("takes over the state of a kubelet without assignments, and of one with policy None", () => {
  const { entries: _, ...without } = kubelets;
  assert.deepEqual(parseKubeletState(JSON.stringify(without))?.assigned, new Map());
  const none = parseKubeletState('{"policyName":"None","machineState":{},"checksum":4236770233}');
  assert.deepEqual(none, { policy: "None", machine: new Map(), assigned: new Map() });
});

test("a corrupt file counts as no state, even beside a kubelet's older one", async () => {
  const files = {
    "/root/graftlet/memory.json": '{"version":1,"policyName":"Static"',
    "/root/memory_manager_state": JSON.stringify(kubelets),
  };
  assert.equal(await readState(filesOf(files), "/root", silentLog(), never), undefined);
});

test("rejects a state with contradictory amounts", () => {
  const withBlock = (block: object) => JSON.stringify({ ...kubelets, entries: { uid: { main: [block] } } });
  const [block] = kubelets.entries.uid.main;
  assert.ok(parseKubeletState(withBlock({ ...block })));
  for (const wrong of [{ size: -1 }, { size: 2 ** 60 }, { type: 1 }, { numaAffinity: [64] }, { numaAffinity: ["0"] }])
    assert.equal(parseKubeletState(withBlock({ ...block, ...wrong })), undefined, JSON.stringify(wrong));
  for (const text of ["", "[]", '{"policyName":1}', '{"policyName":"Static","machineState":{"x":{}}}'])
    assert.equal(parseKubeletState(text), undefined, text);
  assert.equal(parseState(JSON.stringify({ ...kubelets, version: 2 })), undefined);
});

test("continues with a state that fits the machine, and begins a new one if it is empty", () => {
  const saved = { file: "f", policy: "Static", ...state };
  assert.deepEqual(restoredState(machine(4, 4), saved), state);
  const empty = { file: "f", policy: "Static", machine: new Map(), assigned: new Map() };
  assert.deepEqual(restoredState(machine(4, 4), empty), idle(4, 4));
});

test("rejects a state of another policy or machine, in the kubelet's words", () => {
  const saved = { file: "f", policy: "Static", ...state };
  assert.throws(() => checkPolicy(saved, "None"), {
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
