import assert from "node:assert/strict";
import { test } from "node:test";
import { type CpuManagerSettings, describeCpus, openPolicy } from "../../../src/cpus/open.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { cpus, noOptions } from "./machines.ts";

const settings: CpuManagerSettings = {
  rootDir: "/root",
  policy: "static",
  options: noOptions,
  reserved: cpus(0),
  reservedMilli: 1000,
};
const state = '{"policyName":"static","defaultCpuSet":"0,3","entries":{"uid":{"main":"1-2"}}}';
/** Files of a machine with four cores, as the target's grep prints them. */
const topology = [0, 1, 2, 3]
  .map((id) => `cpu/cpu${id}/topology/core_id:${id}\ncpu/cpu${id}/topology/physical_package_id:0\n`)
  .join("");

/** Opens the policy on a target. @param saved the state file. */
function open(more: Partial<CpuManagerSettings>, saved?: string, stdout = topology) {
  const commands: string[] = [];
  const host = {
    async run() {
      commands.push("run");
      return { code: 0, stdout, stderr: "", truncated: false };
    },
    fs: {
      async readFile(path: string) {
        if (saved === undefined || !path.endsWith("cpu_manager_state")) throw new CodedError("not_found", path);
        return Buffer.from(saved);
      },
    },
  };
  const opened = openPolicy({ ...settings, ...more }, host, silentLog(), new AbortController().signal);
  return { opened, commands };
}

test("restores the assignments of the static policy after a restart", async () => {
  assert.equal(describeCpus(await open({}, state).opened), "CPUs 0-3, reserved 0, exclusive 1-2");
  assert.equal(describeCpus(await open({}).opened), "CPUs 0-3, reserved 0, exclusive none");
});

test("with policy none, runs nothing on the target", async () => {
  const { opened, commands } = open({ policy: "none" });
  assert.deepEqual([await opened, commands], [undefined, []]);
});

test("refuses to start a node with an unsuitable policy, CPUs or reservation, with the kubelet's message", async () => {
  const refused = (opened: Promise<unknown>, message: RegExp) =>
    assert.rejects(opened, (error: unknown) => {
      assert.ok(error instanceof TargetError);
      assert.equal(error.reason, "CPUManager");
      assert.match(error.message, message);
      return true;
    });
  await refused(open({ policy: "none" }, state).opened, /configured policy "none" differs from state/);
  await refused(open({ reserved: cpus(9) }).opened, /^reserved-cpus: 9 is not a subset of online-cpus: 0-3$/);
  await refused(open({ reserved: cpus(1) }, state).opened, /not all reserved cpus: "1" are present/);
  await refused(open({}, undefined, "").opened, /^could not detect number of cpus$/);
});
