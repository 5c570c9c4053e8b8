import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type CgroupLimits, weightOf } from "../../../../src/host/cgroups.ts";
import { cpuBits, limitProperties, newSlice, roundedLimits, slicesOf } from "../../../../src/host/systemd/slices.ts";
import { assignment } from "../../../../src/host/systemd/systemd-client.ts";
import { versionOf } from "../../../../src/host/systemd/bus-slices.ts";

const infinity = 18_446_744_073_709_551_615n;

const told = (limits: CgroupLimits, cgroups: 1 | 2, systemd: number) =>
  limitProperties(limits, cgroups, systemd, weightOf).map(({ name, type, value }) => [
    name,
    type,
    value instanceof Uint8Array ? [...value] : value,
  ]);

// Output of opencontainers/cgroups v0.0.6 for the kubelet's resources.
describe("limits as slice properties", () => {
  const all = {
    memoryBytes: 1 << 26,
    cpuShares: 512,
    cpuPeriodUs: 100_000,
    cpuQuotaUs: 50_000,
    pids: 42,
    cpus: "0,3-4",
  };
  const cases: readonly (readonly [
    of: string,
    limits: CgroupLimits,
    cgroups: 1 | 2,
    systemd: number,
    told: unknown,
  ])[] = [
    [
      "all limits for cgroup v1",
      all,
      1,
      252,
      [
        ["MemoryLimit", "t", 67_108_864n],
        ["CPUShares", "t", 512n],
        ["CPUQuotaPeriodUSec", "t", 100_000n],
        ["CPUQuotaPerSecUSec", "t", 500_000n],
        ["TasksMax", "t", 42n],
        ["AllowedCPUs", "ay", [0b11001]],
      ],
    ],
    [
      "all limits for cgroup v2",
      all,
      2,
      255,
      [
        ["MemoryMax", "t", 67_108_864n],
        ["CPUWeight", "t", 20n],
        ["CPUQuotaPeriodUSec", "t", 100_000n],
        ["CPUQuotaPerSecUSec", "t", 500_000n],
        ["TasksMax", "t", 42n],
        ["AllowedCPUs", "ay", [0b11001]],
      ],
    ],
    [
      "a quota's period, but no CPUs, for systemd 243",
      { cpuPeriodUs: 100_000, cpuQuotaUs: 50_000, cpus: "0" },
      1,
      243,
      [
        ["CPUQuotaPeriodUSec", "t", 100_000n],
        ["CPUQuotaPerSecUSec", "t", 500_000n],
      ],
    ],
    [
      "neither a quota's period nor CPUs for systemd 241",
      { cpuPeriodUs: 50_000, cpuQuotaUs: 50_000, cpus: "0" },
      2,
      241,
      [["CPUQuotaPerSecUSec", "t", 1_000_000n]],
    ],
    ["a quota without a period", { cpuQuotaUs: 25_000 }, 2, 252, [["CPUQuotaPerSecUSec", "t", 250_000n]]],
    ["a quota of 12.5% to one of 13%", { cpuQuotaUs: 12_500 }, 2, 252, [["CPUQuotaPerSecUSec", "t", 130_000n]]],
    ["a quota of -1 to no quota", { cpuQuotaUs: -1 }, 1, 252, [["CPUQuotaPerSecUSec", "t", infinity]]],
    [
      "a period without a quota to no quota",
      { cpuPeriodUs: 100_000 },
      1,
      252,
      [
        ["CPUQuotaPeriodUSec", "t", 100_000n],
        ["CPUQuotaPerSecUSec", "t", infinity],
      ],
    ],
    ["a limit of 0 tasks to 1 task", { pids: 0 }, 2, 252, [["TasksMax", "t", 1n]]],
    ["a limit of -1 tasks to no limit", { pids: -1 }, 2, 252, [["TasksMax", "t", infinity]]],
    ["a memory limit of -1 to no limit", { memoryBytes: -1 }, 2, 252, [["MemoryMax", "t", infinity]]],
    [
      "a limit on huge pages to nothing, because it is set in the cgroup's files",
      { hugepages: { "2MB": 0 } },
      2,
      252,
      [],
    ],
    ["no limits to no properties", {}, 1, 252, []],
  ];
  for (const [of, limits, cgroups, systemd, expected] of cases)
    it(`converts ${of}`, () => assert.deepEqual(told(limits, cgroups, systemd), expected));

  it("rounds the quota in cgroup files as systemd does", () => {
    const quota = (cpuQuotaUs: number, cpuPeriodUs?: number) =>
      roundedLimits({ cpuQuotaUs, ...(cpuPeriodUs !== undefined && { cpuPeriodUs }) }).cpuQuotaUs;
    assert.deepEqual(
      [
        quota(50_000, 100_000),
        quota(12_500, 100_000),
        quota(1_000, 100_000),
        quota(33_333, 50_000),
        quota(-1, 100_000),
      ],
      [50_000, 13_000, 1_000, 33_500, -1],
    );
    assert.equal(quota(12_345), 13_000);
  });
});

it("encodes CPUs as a bit mask, lowest byte first", () => {
  assert.deepEqual([...cpuBits("0-3")], [0x0f]);
  assert.deepEqual([...cpuBits("1, 8,17-18")], [0x02, 0x01, 0x06]);
});

it("a new slice has a Wants dependency on its parent, enables accounting, and has no default dependencies", () => {
  const [first, second] = slicesOf("/kubepods.slice/kubepods-burstable.slice");
  assert.deepEqual(first, { slice: "kubepods.slice", parent: "-.slice" });
  const properties = newSlice(second?.slice ?? "", second?.parent ?? "", 2);
  assert.deepEqual(
    properties.slice(1).map(({ name, type, value }) => [name, type, value]),
    [
      ["Wants", "as", ["kubepods.slice"]],
      ["MemoryAccounting", "b", true],
      ["CPUAccounting", "b", true],
      ["IOAccounting", "b", true],
      ["TasksAccounting", "b", true],
      ["DefaultDependencies", "b", false],
    ],
  );
  assert.ok(newSlice("a.slice", "-.slice", 1).some(({ name }) => name === "BlockIOAccounting"));
});

it("parses the systemd versions of various distributions", () => {
  assert.deepEqual(["v245.4-1.fc32", "252.38-1~deb12u1", "245", "none"].map(versionOf), [245, 252, 245, 0]);
});

it("passes the same properties to systemctl as text", () => {
  const limits = { memoryBytes: -1, cpuShares: 2, cpuPeriodUs: 50_000, cpuQuotaUs: 12_500, pids: 42, cpus: "0-1,9" };
  assert.deepEqual(limitProperties(limits, 2, 252, weightOf).map(assignment), [
    "MemoryMax=infinity",
    "CPUWeight=1",
    "CPUQuotaPeriodSec=50000us",
    "CPUQuota=25%",
    "TasksMax=42",
    "AllowedCPUs=0,1,9",
  ]);
  assert.equal(assignment({ name: "CPUQuotaPerSecUSec", type: "t", value: infinity }), "CPUQuota=");
});
