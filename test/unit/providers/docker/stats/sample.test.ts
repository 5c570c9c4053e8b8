import assert from "node:assert/strict";
import { test } from "node:test";
import type { ContainerInfo } from "dockerode";
import { type MeasuredContainer, podStats } from "../../../../../providers/docker/stats/stats.ts";
import { type StatsSample, type Usage, parseUsage } from "../../../../../providers/docker/stats/sample.ts";
import { ContainerStats } from "../../../../../src/gen/cri.ts";

const machineBytes = 8000;
const at = 1_767_268_800_123_456_789n;
const sample: StatsSample = {
  read: "2026-01-01T12:00:00.123456789Z",
  cpu_stats: { cpu_usage: { total_usage: 70 } },
  memory_stats: {
    usage: 1000,
    limit: 4000,
    stats: { inactive_file: 1, total_inactive_file: 300, total_rss: 500, total_pgfault: 9, total_pgmajfault: 2 },
  },
  pids_stats: { current: 3 },
};

function usage(changes: Partial<StatsSample> = {}): Usage {
  const found = parseUsage({ ...sample, ...changes }, machineBytes);
  assert.ok(found);
  return found;
}

test("reads usage with cgroup v1, to the nanosecond", () => {
  const { cpu, memory, network, processes } = usage();
  assert.equal(cpu.timestamp, at);
  assert.equal(cpu.usageCoreNanoSeconds?.value, 70n);
  assert.equal(memory.workingSetBytes?.value, 700n);
  assert.equal(memory.availableBytes?.value, 3300n);
  assert.equal(memory.rssBytes?.value, 500n);
  assert.equal(memory.pageFaults?.value, 9n);
  assert.equal(memory.majorPageFaults?.value, 2n);
  assert.equal(network, undefined);
  assert.equal(processes, 3n);
});

test("reads usage with cgroup v2, without a limit", () => {
  const stats = { inactive_file: 1200, anon: 400, pgfault: 5, pgmajfault: 1 };
  const { memory } = usage({ memory_stats: { usage: 1000, limit: machineBytes, stats } });
  assert.equal(memory.workingSetBytes?.value, 0n, "never below nothing");
  assert.equal(memory.availableBytes, undefined);
  assert.equal(memory.rssBytes?.value, 400n);
  assert.equal(memory.pageFaults?.value, 5n);
});

test("a stopped container has no usage", () => {
  assert.equal(parseUsage({ read: "0001-01-01T00:00:00Z" }, machineBytes), undefined);
  assert.equal(parseUsage({ ...sample, memory_stats: {} }, machineBytes), undefined);
});

const counters = { rx_bytes: 1, rx_errors: 2, tx_bytes: 3, tx_errors: 4 };
const stats = ContainerStats.fromPartial({ attributes: { id: "c1" } });

function podOf(sandboxUsage: Usage | undefined, containers: readonly MeasuredContainer[]) {
  const sandbox = {
    Id: "s1",
    Names: ["/k8s_POD_p_ns_u1_2"],
    Labels: { a: "b", "annotation.c": "d", "graftlet.dev/node": "n1" },
  };
  const { attributes, linux } = podStats(sandbox as unknown as ContainerInfo, sandboxUsage, containers);
  assert.ok(attributes && linux);
  return { attributes, linux };
}

test("a pod's usage is the sum of its sandbox's and its running containers'", () => {
  const { attributes, linux } = podOf(usage(), [
    { stats, usage: usage() },
    { stats, usage: undefined },
  ]);
  assert.deepEqual(attributes.metadata, { name: "p", namespace: "ns", uid: "u1", attempt: 2 });
  assert.deepEqual(attributes.annotations, { c: "d" });
  assert.equal(linux.cpu?.usageCoreNanoSeconds?.value, 140n);
  assert.equal(linux.memory?.workingSetBytes?.value, 1400n);
  assert.equal(linux.process?.processCount?.value, 6n);
  assert.equal(linux.containers.length, 2);
});

test("a pod's network usage is its sandbox's", () => {
  const networks = { eth1: { ...counters, rx_bytes: 7 }, eth0: counters };
  const { network } = podOf(usage({ networks }), []).linux;
  assert.equal(network?.defaultInterface?.name, "eth0");
  assert.equal(network?.defaultInterface?.txErrors?.value, 4n);
  assert.deepEqual(
    network?.interfaces.map(({ name, rxBytes }) => [name, rxBytes?.value]),
    [["eth1", 7n]],
  );
});

test("a pod without running containers has no usage", () => {
  assert.equal(podOf(undefined, []).linux.cpu, undefined);
});
