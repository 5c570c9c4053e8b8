import assert from "node:assert/strict";
import { test } from "node:test";
import { checkPolicy, restoredAssignments } from "../../../src/cpus/check-state.ts";
import { parseKubeletState, parseState, readState, writeState } from "../../../src/cpus/state-file.ts";
import { createStaticPolicy } from "../../../src/cpus/static-policy.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { filesOf } from "../../fakes/files.ts";
import { never } from "../../fakes/signals.ts";
import { cpus, machine, noOptions } from "./machines.ts";

const state = {
  policy: "static",
  shared: cpus(0, 3),
  assigned: new Map([["uid", new Map([["main", cpus(1, 2)]])]]),
};
const kubelets = '{"policyName":"static","defaultCpuSet":"0,3","entries":{"uid":{"main":"1-2"}},"checksum":2830386497}';

test("a state file that was written is read back unchanged", async () => {
  const fs = filesOf({});
  await writeState(fs, "/root", state, never);
  assert.deepEqual(await readState(fs, "/root", silentLog(), never), { file: "/root/graftlet/cpus.json", ...state });
});

test("takes over a kubelet's state unless graftlet has a state of its own with pods", async () => {
  const files: Record<string, string> = { "/root/cpu_manager_state": kubelets };
  const fs = filesOf(files);
  const read = () => readState(fs, "/root", silentLog(), never);
  assert.deepEqual(await read(), { file: "/root/cpu_manager_state", ...state });
  const assigned = new Map([["own", new Map([["c", new Set([1])]])]]);
  await writeState(fs, "/root", { ...state, assigned }, never);
  assert.deepEqual((await read())?.assigned, assigned);
  await writeState(fs, "/root", { ...state, assigned: new Map() }, never);
  assert.equal(await read(), undefined);
});

test("a corrupt file counts as no state, even beside a kubelet's older one", async () => {
  const files = { "/root/graftlet/cpus.json": '{"version":1,"policy":"static"', "/root/cpu_manager_state": kubelets };
  assert.equal(await readState(filesOf(files), "/root", silentLog(), never), undefined);
});

test("rejects a state with contradictory CPUs", () => {
  for (const text of ["", "[]", "{}", '{"version":2,"policy":"static","shared":"0"}'])
    assert.equal(parseState(text), undefined);
  assert.equal(parseState('{"version":1,"policy":"static","shared":"0-","pods":{}}'), undefined);
  assert.equal(parseState('{"version":1,"policy":"static","shared":"0","pods":{"u":{"c":1}}}'), undefined);
  assert.equal(parseKubeletState('{"policyName":"none"}'), undefined);
});

const file = "/root/cpu_manager_state";
const policy = (reserved: readonly number[], cores = 4, strictReservation = false) =>
  createStaticPolicy({
    topology: machine({ cores }),
    options: { ...noOptions, strictReservation },
    reserved: cpus(...reserved),
    reservedMilli: 0,
  });

test("refuses a state of another policy with the kubelet's message", () => {
  assert.throws(
    () => checkPolicy({ file, ...state }, "none"),
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
