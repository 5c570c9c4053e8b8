import assert from "node:assert/strict";
import { test } from "node:test";
import { missingControllers, openCgroups, weightOf } from "../../../src/host/cgroups.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type FakeHost, fakeHost } from "../../fakes/host.ts";
import { never } from "../../fakes/signals.ts";

const limits = { cpuShares: 512, cpuQuotaUs: 50_000, cpuPeriodUs: 100_000, memoryBytes: 1 << 20, pids: 42 };

async function withVersion1(): Promise<FakeHost> {
  const host = fakeHost({ clock: fakeClock() });
  for (const name of ["cpu", "memory", "pids", "cpuset"])
    await host.fs.apply([{ kind: "mkdir", path: `/sys/fs/cgroup/${name}`, parents: true }]);
  // The kernel creates a cgroup's files with its directory.
  const kernel = (directory: string, cpus: string) => {
    host.files.put(`${directory}/cpuset.cpus`, { data: cpus });
    host.files.put(`${directory}/cpuset.mems`, { data: cpus === "" ? "" : "0\n" });
  };
  kernel("/sys/fs/cgroup/cpuset", "0-1\n");
  host.files.onChange(async (change) => {
    if (change.kind !== "mkdir" || !change.path.startsWith("/sys/fs/cgroup/cpuset/")) return;
    const parts = change.path.slice("/sys/fs/cgroup/cpuset/".length).split("/");
    for (let depth = 1; depth <= parts.length; depth++) {
      const directory = `/sys/fs/cgroup/cpuset/${parts.slice(0, depth).join("/")}`;
      if (!host.files.tree("/sys/fs/cgroup").includes(`${directory}/cpuset.cpus`)) kernel(directory, "");
    }
  });
  return host;
}

test("v1: creates a directory in each mounted hierarchy, and writes limits to each controller's files", async () => {
  const host = await withVersion1();
  const cgroups = await openCgroups(host, 1, never);
  await cgroups.ensure("/kubepods/pod1", limits, never);
  const read = (path: string) => host.files.text(`/sys/fs/cgroup/${path}`);
  assert.deepEqual(
    [
      "cpu/kubepods/pod1/cpu.shares",
      "cpu/kubepods/pod1/cpu.cfs_quota_us",
      "cpu/kubepods/pod1/cpu.cfs_period_us",
      "memory/kubepods/pod1/memory.limit_in_bytes",
      "pids/kubepods/pod1/pids.max",
    ].map(read),
    ["512", "50000", "100000", String(1 << 20), "42"],
  );
  assert.deepEqual(host.files.tree("/sys/fs/cgroup").filter((path) => path.endsWith("/pod1")).length, 4);
});

test("v1: a new cpuset inherits its parent's CPUs and memory nodes, at every depth", async () => {
  const host = await withVersion1();
  await (await openCgroups(host, 1, never)).ensure("/kubepods/burstable/pod1", {}, never);
  for (const path of ["kubepods", "kubepods/burstable", "kubepods/burstable/pod1"]) {
    assert.equal(host.files.text(`/sys/fs/cgroup/cpuset/${path}/cpuset.cpus`).trim(), "0-1");
    assert.equal(host.files.text(`/sys/fs/cgroup/cpuset/${path}/cpuset.mems`).trim(), "0");
  }
});

test("v2: creates one directory, converts shares to a weight, and writes a quota of -1 as max", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const cgroups = await openCgroups(host, 2, never);
  await cgroups.ensure("/kubepods/pod1", limits, never);
  const read = (file: string) => host.files.text(`/sys/fs/cgroup/kubepods/pod1/${file}`);
  assert.deepEqual(["cpu.weight", "cpu.max", "memory.max", "pids.max"].map(read), [
    "20",
    "50000 100000",
    String(1 << 20),
    "42",
  ]);
  await cgroups.ensure("/kubepods/pod1", { cpuQuotaUs: -1 }, never);
  assert.equal(read("cpu.max"), "max 100000");
  assert.deepEqual([weightOf(2), weightOf(1024), weightOf(262_144)], [1, 39, 10_000]);
});

test("removes only directories, depth first, and reports the name of a cgroup that still has processes", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const cgroups = await openCgroups(host, 2, never);
  await cgroups.ensure("/kubepods/pod1/c1", {}, never);
  await cgroups.ensure("/kubepods/pod2", {}, never);
  assert.deepEqual([...(await cgroups.children("/kubepods", never))].sort(), ["pod1", "pod2"]);
  await cgroups.remove(["/kubepods/pod1"], never);
  await cgroups.remove(["/kubepods/pod1"], never);
  assert.deepEqual(
    [await cgroups.children("/kubepods", never), await cgroups.children("/none", never)],
    [["pod2"], []],
  );
  host.files.put("/sys/fs/cgroup/kubepods/pod2/cgroup.procs", { data: "1\n" });
  await assert.rejects(cgroups.remove(["/kubepods/pod2"], never), {
    code: "failed_precondition",
    message: "/sys/fs/cgroup/kubepods/pod2 still has processes in it",
  });
});

test("creates a cgroup below a prepared one without checks, and falls back to checks on failure", async () => {
  const host = await withVersion1();
  const cgroups = await openCgroups(host, 1, never);
  await cgroups.ensure("/kubepods", {}, never);
  const { readFile } = host.fs;
  let reads = 0;
  host.fs.readFile = (...given) => {
    reads += 1;
    return readFile(...given);
  };
  const cpus = (path: string) => host.files.text(`/sys/fs/cgroup/cpuset${path}/cpuset.cpus`).trim();
  await cgroups.create("/kubepods/pod1", limits, never);
  assert.deepEqual([cpus("/kubepods/pod1"), reads], ["0-1", 0]);
  // One CPU less than when the CPUs were read: the kernel rejects CPUs that the parent does not have.
  host.files.put("/sys/fs/cgroup/cpuset/kubepods/cpuset.cpus", { data: "0\n" });
  const refuse = (path: string, data: unknown) => path.endsWith("/cpuset.cpus") && data === "0-1";
  const files = host.fs.apply;
  host.fs.apply = async (changes, signal) => {
    if (changes.some((change) => change.kind === "write" && refuse(change.path, change.data)))
      throw new CodedError("permission_denied", "cpuset.cpus");
    return files(changes, signal);
  };
  await cgroups.create("/kubepods/pod2", limits, never);
  assert.equal(cpus("/kubepods/pod2"), "0");
  assert.equal(host.files.text("/sys/fs/cgroup/pids/kubepods/pod2/pids.max"), "42");
});

test("removes several cgroups in one command, or with their child cgroups if the runtime left any", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const cgroups = await openCgroups(host, 2, never);
  for (const path of ["/kubepods/pod1/c1/init", "/kubepods/burstable/pod1"]) await cgroups.ensure(path, {}, never);
  const list = host.fs.list;
  let looks = 0;
  host.fs.list = (...given) => {
    looks += 1;
    return list(...given);
  };
  await cgroups.remove(["/kubepods/burstable/pod1", "/kubepods/besteffort/pod1"], never);
  assert.equal(looks, 0);
  await cgroups.remove(["/kubepods/pod1", "/kubepods/burstable/pod1"], never);
  assert.deepEqual(await cgroups.children("/kubepods", never), ["burstable"]);
});

test("v1 and v2: sets a CPU list, which child cgroups inherit", async () => {
  const host = await withVersion1();
  const cgroups = await openCgroups(host, 1, never);
  await cgroups.ensure("/kubepods", {}, never);
  await cgroups.ensure("/kubepods", { cpus: "1" }, never);
  await cgroups.create("/kubepods/pod1", {}, never);
  assert.equal(host.files.text("/sys/fs/cgroup/cpuset/kubepods/pod1/cpuset.cpus"), "1");
  const unified = fakeHost({ clock: fakeClock() });
  await (await openCgroups(unified, 2, never)).ensure("/kubepods", { cpus: "0-1" }, never);
  assert.equal(unified.files.text("/sys/fs/cgroup/kubepods/cpuset.cpus"), "0-1");
});

test("v1: ignores directories without a hierarchy, and uses a shared hierarchy for each of its controllers", async () => {
  const host = await withVersion1();
  const at = (name: string) => `/sys/fs/cgroup/${name}`;
  for (const name of ["hugetlb", "cpu,cpuacct"])
    await host.fs.apply([{ kind: "mkdir", path: at(name), parents: true }]);
  for (const name of ["cpu,cpuacct", "memory", "pids"]) host.files.mount(at(name), "cgroup");
  await (await openCgroups(host, 1, never)).ensure("/kubepods", { ...limits, hugepages: { "2MB": 0 } }, never);
  assert.equal(host.files.text(at("cpu/kubepods/cpu.shares")), "512");
  assert.ok(!host.files.tree("/sys/fs/cgroup").includes(at("hugetlb/kubepods")));
});

test("v1: ignores limits of controllers that are not mounted, and reports missing required controllers", async () => {
  const host = await withVersion1();
  for (const name of ["cpu,cpuacct", "cpuset"]) {
    await host.fs.apply([{ kind: "mkdir", path: `/sys/fs/cgroup/${name}`, parents: true }]);
    host.files.mount(`/sys/fs/cgroup/${name}`, "cgroup");
  }
  host.files.put("/sys/fs/cgroup/cpuset/cpuset.cpus", { data: "0\n" });
  host.files.put("/sys/fs/cgroup/cpuset/cpuset.mems", { data: "0\n" });
  const cgroups = await openCgroups(host, 1, never);
  assert.equal(cgroups.limitsPids, false);
  await cgroups.ensure("/kubepods", { cpuShares: 512, pids: 42 }, never);
  assert.ok(!host.files.tree("/sys/fs/cgroup/pids").includes("/sys/fs/cgroup/pids/kubepods"));
  assert.deepEqual(await missingControllers(host, 1, never), ["memory"]);
});

test("v2: reports required controllers that the kernel lacks, and none if the target does not show them", async () => {
  const host = fakeHost({ clock: fakeClock() });
  const listing = (data: string) => {
    host.files.put("/sys/fs/cgroup/cgroup.controllers", { data });
    return missingControllers(host, 2, never);
  };
  assert.deepEqual(await listing("cpuset cpu io memory hugetlb pids rdma misc\n"), []);
  assert.deepEqual(await listing("cpuset cpu io hugetlb pids rdma misc\n"), ["memory"]);
  assert.deepEqual(await listing("\n"), ["cpu", "memory"]);
  await host.fs.apply([{ kind: "remove", path: "/sys/fs/cgroup/cgroup.controllers" }], never);
  assert.deepEqual(await missingControllers(host, 2, never), []);
});

test("validates a cgroup created by others: reports missing paths on v1, missing controllers on v2", async () => {
  const kube = { path: "/kube", name: '["kube"]' };
  const first = await withVersion1();
  const version1 = await openCgroups(first, 1, never);
  const paths = ["cpu", "cpuset", "memory", "pids"].map((name) => `/sys/fs/cgroup/${name}/kube`);
  await first.fs.apply([{ kind: "mkdir", path: paths[0] ?? "", parents: false }], never);
  const said = await version1.validate(kube, never);
  assert.match(said ?? "", /^cgroup \["kube"\] has some missing paths: /);
  assert.deepEqual((said ?? "").split(": ")[1]?.split(", ").toSorted(), paths.slice(1));
  await version1.ensure("/kube", {}, never);
  assert.equal(await version1.validate(kube, never), undefined);

  const second = fakeHost({ clock: fakeClock() });
  const version2 = await openCgroups(second, 2, never);
  const controllers = (path: string, data: string) =>
    second.files.put(`/sys/fs/cgroup${path}/cgroup.controllers`, { data });
  controllers("", "cpuset cpu io memory pids rdma misc\n");
  assert.equal(
    await version2.validate(kube, never),
    'could not read controllers for cgroup ["kube"]: open /sys/fs/cgroup/kube/cgroup.controllers: no such file or directory',
  );
  controllers("/kube", "memory pids\n");
  assert.equal(await version2.validate(kube, never), 'cgroup ["kube"] has some missing controllers: cpu, cpuset');
  controllers("/kube", "cpuset cpu memory pids\n");
  assert.equal(await version2.validate(kube, never), undefined);
});
