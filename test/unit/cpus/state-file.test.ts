import assert from "node:assert/strict";
import { test } from "node:test";
import { parseCpuState, readCpuState, writeCpuState } from "../../../src/cpus/state-file.ts";
import { createStaticPolicy } from "../../../src/cpus/static-policy.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { wholePod } from "../../../src/pod/pinned-resources.ts";
import { filesOf } from "../../fakes/files.ts";
import { never } from "../../fakes/signals.ts";
import { cpus, machine, noOptions } from "./machines.ts";
import { checkCpuPolicy, restoredAssignments } from "../../../src/cpus/open.ts";

const state = {
  policy: "static",
  shared: cpus(0, 3),
  assigned: new Map([["uid", new Map([["main", cpus(1, 2)]])]]),
};
const files = { current: "/root/cpu_manager_state", former: "/root/graftlet/cpus.json" };
const kubelets = '{"policyName":"static","defaultCpuSet":"0,3","entries":{"uid":{"main":"1-2"}},"checksum":3907425778}';
const before = '{"version":1,"policy":"static","shared":"0,3","pods":{"uid":{"main":"1-2"}}}';

test("a state file is written as a kubelet writes it, and read back unchanged", async () => {
  const written: Record<string, string> = {};
  const fs = filesOf(written);
  await writeCpuState(fs, "/root", state, never);
  assert.deepEqual(written, { [files.current]: kubelets });
  assert.deepEqual(await readCpuState(fs, "/root", silentLog(), never), { file: files.current, ...state });
  await writeCpuState(fs, "/root", undefined, never);
  assert.deepEqual(written, {});
});

test("the checksum equals the kubelet's for any number of pods and containers", () => {
  const entries = { a: { x: "", "b c": "5" }, uid: { main: "1-2" } };
  const text = (checksum: number) => JSON.stringify({ policyName: "static", defaultCpuSet: "0,3", entries, checksum });
  assert.ok(parseCpuState(text(3390413117)));
  assert.ok(parseCpuState('{"policyName":"none","defaultCpuSet":"","checksum":1353318690}'));
});

test("stores the CPUs of pods with pod-level resources as a kubelet does", async () => {
  const pods = '"entries":{"a":{"b c":"5","x":""},"uid":{"main":"1-2"}},"podEntries":{"p":{"cpuSet":"2-3,10"},"q":{}}';
  const text = `{"policyName":"static","defaultCpuSet":"0,3",${pods},"checksum":2803680168}`;
  const read = parseCpuState(text);
  assert.deepEqual(read?.assigned.get("p"), new Map([[wholePod, cpus(2, 3, 10)]]));
  const written: Record<string, string> = {};
  await writeCpuState(filesOf(written), "/root", read, never);
  assert.deepEqual(parseCpuState(written[files.current] ?? ""), read);
  assert.ok(parseCpuState(text.replace(/"podEntries.*/, '"checksum":276934111}')), "none");
});

test("the file of an earlier version is converted once", async () => {
  const written: Record<string, string> = { [files.former]: before };
  const fs = filesOf(written);
  assert.deepEqual(await readCpuState(fs, "/root", silentLog(), never), { file: files.former, ...state });
  await writeCpuState(fs, "/root", state, never);
  assert.deepEqual(written, { [files.current]: kubelets });
});

test("a state file in which no pod has CPUs counts as no state", async () => {
  const none = '{"policyName":"none","defaultCpuSet":"","checksum":1353318690}';
  assert.equal(await readCpuState(filesOf({ [files.current]: none }), "/root", silentLog(), never), undefined);
});

test("a corrupt file counts as no state", async () => {
  for (const torn of [kubelets.slice(0, 60), kubelets.replace("1-2", "1"), ""])
    assert.equal(await readCpuState(filesOf({ [files.current]: torn }), "/root", silentLog(), never), undefined, torn);
});

test("rejects a state with contradictory CPU assignments", () => {
  for (const text of ["", "[]", "{}", '{"policyName":"none"}', '{"policyName":"static","defaultCpuSet":"0-"}'])
    assert.equal(parseCpuState(text), undefined);
  assert.equal(parseCpuState('{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"c":1}}}'), undefined);
});

const file = "/root/cpu_manager_state";
const policy = (reserved: readonly number[], cores = 4, strictReservation = false) =>
  createStaticPolicy({
    topology: machine({ cores }),
    options: { ...noOptions, strictReservation },
    reserved: cpus(...reserved),
    reservedMilli: 0,
  });

test("refuses a state written under another policy, with the kubelet's message", () => {
  assert.throws(
    () => checkCpuPolicy({ file, ...state }, "none"),
    /^Error: could not restore state from checkpoint: configured policy "none" differs from state checkpoint policy "static", please drain this node and delete the CPU manager checkpoint file "\/root\/cpu_manager_state" before restarting Kubelet$/,
  );
});

test("refuses a state that does not fit the target's CPUs, with the kubelet's messages", () => {
  const refused = (of: ReturnType<typeof policy>, more: Partial<typeof state> = {}): string => {
    try {
      restoredAssignments(of, { file, ...state, ...more });
    } catch (error) {
      return (error as Error).message.replace(/: please drain.*$/, "");
    }
    return "accepted";
  };
  assert.equal(refused(policy([1])), 'not all reserved cpus: "1" are present in defaultCpuSet: "0,3"');
  assert.equal(
    refused(policy([0], 4, true)),
    'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0,3"',
  );
  assert.equal(
    refused(policy([0]), { shared: cpus(0, 2, 3) }),
    'pod: uid, container: main cpuset: "1-2" overlaps with default cpuset "0,2-3"',
  );
  assert.equal(refused(policy([0], 2)), 'current set of available CPUs "0-1" doesn\'t match with CPUs in state "0-3"');
  assert.equal(refused(policy([0]), { shared: cpus() }), "default cpuset cannot be empty");
  assert.deepEqual(restoredAssignments(policy([0]), { file, ...state }), state.assigned);
});
