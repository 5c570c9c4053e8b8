import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import { type TargetFacts, createTargetFacts, usesSwap } from "../../../src/runtime/target-facts.ts";
import type { Host } from "../../../src/seams/host.ts";

const { signal } = new AbortController();

/** A target with these files and their parent directories. */
function targetOf(files: Readonly<Record<string, string>>) {
  const state = { reads: 0, down: false };
  const missing = (path: string) => new CodedError("not_found", `${path} does not exist`);
  const reach = () => {
    state.reads += 1;
    if (state.down) throw new CodedError("unavailable", "the target is away");
  };
  const fs = {
    async readFile(path: string) {
      reach();
      const text = files[path];
      if (text === undefined) throw missing(path);
      return Buffer.from(text);
    },
    async list(path: string) {
      reach();
      const names = Object.keys(files)
        .filter((file) => file.startsWith(`${path}/`))
        .map((file) => file.slice(path.length + 1).split("/")[0] ?? "");
      if (names.length === 0) throw missing(path);
      return [...new Set(names)].map((name) => ({ name, kind: "directory" as const }));
    },
    async stat(path: string) {
      reach();
      if (!Object.keys(files).some((file) => file === path || file.startsWith(`${path}/`))) throw missing(path);
      return {};
    },
  };
  return { state, facts: createTargetFacts(fs as unknown as Host["fs"]) };
}

const common = {
  "/proc/meminfo": "MemTotal:        8054940 kB\nMemFree: 1 kB\n",
  "/proc/self/cgroup": "0::/system.slice/ssh.service\n",
  "/sys/devices/system/cpu/cpu0/thermal_throttle/core_power_limit_count": "0",
  "/sys/devices/system/cpu/cpu1/online": "1",
  "/sys/devices/system/cpu/cpufreq/x": "",
};

describe("facts of the target's cgroups and memory", () => {
  it("target facts are read with cgroup v1", async () => {
    const { facts } = targetOf({
      ...common,
      "/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes": "0",
      "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "0",
    });
    assert.deepEqual(await facts(signal), {
      memoryBytes: 8_248_258_560,
      swapBytes: 0,
      hugePageSizes: ["2MB"],
      cgroupV2: false,
      swapController: true,
      thermalPaths: ["/sys/devices/system/cpu/cpu0/thermal_throttle"],
      selinux: false,
    });
  });
  it("target facts are read with cgroup v2", async () => {
    const v2 = { ...common, "/sys/fs/cgroup/cgroup.controllers": "memory", "/sys/fs/selinux/enforce": "1" };
    const bare = await targetOf(v2).facts(signal);
    assert.deepEqual([bare.cgroupV2, bare.swapController, bare.selinux, bare.hugePageSizes], [true, false, true, []]);
    const swap = await targetOf({ ...v2, "/sys/fs/cgroup/system.slice/ssh.service/memory.swap.max": "max" }).facts(
      signal,
    );
    assert.equal(swap.swapController, true);
  });
  it("target facts are read once, and again after a failure", async () => {
    const { facts, state } = targetOf(common);
    state.down = true;
    await assert.rejects(facts(signal), { code: "unavailable" });
    state.down = false;
    await facts(signal);
    const { reads } = state;
    await facts(signal);
    assert.equal(state.reads, reads);
  });
});

it("uses swap only with the setting, cgroup v2 and its swap controller", async () => {
  const uses = (setting: boolean, cgroupV2: boolean, swapController: boolean) =>
    usesSwap(setting, async () => ({ cgroupV2, swapController }) as TargetFacts, signal);
  assert.equal(await uses(true, true, true), true);
  assert.deepEqual([await uses(true, false, true), await uses(true, true, false)], [false, false]);
  assert.equal(await usesSwap(false, () => Promise.reject(new Error("not read")), signal), false);
});
