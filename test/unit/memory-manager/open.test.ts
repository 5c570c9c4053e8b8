import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { type MemoryManagerSettings, describeMemory, openMemory } from "../../../src/memory-manager/open.ts";
import { writeMemoryState } from "../../../src/memory-manager/state-file.ts";
import { allocateMemory } from "../../../src/memory-manager/static-policy.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { filesOf } from "../../fakes/files.ts";
import { never } from "../../fakes/signals.ts";
import { asking, idle, podOf } from "./machines.ts";

const settings: MemoryManagerSettings = {
  rootDir: "/root",
  policy: "Static",
  reservedMemory: [{ numaNode: 0, limits: { memory: "1Gi" } }],
  kubeReserved: {},
  systemReserved: { memory: "924Mi" },
  evictionHard: "100Mi",
};
/** Files of a machine with two NUMA nodes of 4 GiB, as the target's grep prints them. */
const topology = [0, 1].map((id) => `node${id}/meminfo:Node ${id} MemTotal: ${4 * 2 ** 20} kB\n`).join("");

/** Opens the memory of a target. @param files on it. */
function open(more: Partial<MemoryManagerSettings>, files: Record<string, string> = {}, stdout = topology) {
  const commands: string[] = [];
  const host = {
    async run() {
      commands.push("run");
      return { code: 0, stdout, stderr: "", truncated: false };
    },
    fs: filesOf(files),
  };
  const opened = openMemory({ ...settings, ...more }, host, silentLog(), new AbortController().signal);
  return { opened, commands };
}

/** The target's files after a pod was allocated 2 GiB. */
async function savedFiles(): Promise<Record<string, string>> {
  const files: Record<string, string> = {};
  const state = allocateMemory(idle(4, 4), podOf("uid", []), asking("main", "2Gi"));
  await writeMemoryState(filesOf(files), "/root", state, never);
  return files;
}

test("restores the memory assignments from before a restart", async () => {
  const before = await open({}, await savedFiles()).opened;
  assert.equal(
    before && describeMemory(before),
    "NUMA node 0: 3.0 GiB for pods, 2.0 GiB of it allocated to Guaranteed pods; 1.0 GiB reserved; NUMA node 1: 4.0 GiB for pods, 0.0 GiB of it allocated to Guaranteed pods; 0.0 GiB reserved",
  );
  assert.deepEqual(await open({}).opened, idle(4, 4));
});

test("with policy None, nothing runs on the target", async () => {
  const { opened, commands } = open({ policy: "None", reservedMemory: [] });
  assert.deepEqual([await opened, commands], [undefined, []]);
});

test("refuses to start a node whose policy, memory or reservation does not fit, in the kubelet's words", async () => {
  const refused = (opened: Promise<unknown>, message: RegExp) =>
    assert.rejects(opened, (error: unknown) => {
      assert.ok(error instanceof TargetError);
      assert.equal(error.reason, "MemoryManager");
      assert.match(error.message, message);
      return true;
    });
  const files = await savedFiles();
  await refused(open({ policy: "None" }, files).opened, /configured policy "None" differs from state/);
  await refused(open({ evictionHard: "0" }).opened, /is not equal to the value "924Mi" determined by Node Allocatable/);
  const more = { reservedMemory: [{ numaNode: 0, limits: { memory: "2Gi" } }], systemReserved: { memory: "1948Mi" } };
  await refused(open(more, files).opened, /^\[memorymanager\] the expected machine state is different/);
  await refused(open({}, {}, "").opened, /does not report the memory of its NUMA nodes/);
});

test("an unresponsive target is not rejected permanently", async () => {
  const fs = { readFile: () => Promise.reject(new CodedError("unavailable", "no target")) };
  const run = () => Promise.reject(new CodedError("unavailable", "no target"));
  await assert.rejects(openMemory(settings, { run, fs }, silentLog(), never), { code: "unavailable" });
});
