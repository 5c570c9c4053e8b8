import assert from "node:assert/strict";
import { test } from "node:test";
import { openCgroups } from "../../../src/host/cgroups.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { createLogger } from "../../../src/lib/log.ts";
import { createNodeAllocatable } from "../../../src/cgroups/node-allocatable.ts";
import { type Enforcement, createReservedCgroups } from "../../../src/cgroups/reserved-cgroups.ts";
import type { CgroupDriver } from "../../../src/pod/cgroup-path.ts";
import type { ObjectReference } from "../../../src/objects.ts";
import { createQosCgroups } from "../../../src/cgroups/qos-cgroups.ts";
import { allocatedPod } from "../../../src/roles.ts";
import { TargetError } from "../../../src/seams/provider.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { fakeHost } from "../../fakes/host.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { never } from "../../fakes/signals.ts";

const root = "/sys/fs/cgroup";
const minute = 60_000;
const pods = `${root}/kubepods`;
const controllers = "cpu memory pids hugetlb\n";

async function rig(more: Partial<Enforcement> = {}, perQos = true, driver: CgroupDriver = "cgroupfs") {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  host.files.put(`${root}/cgroup.controllers`, { data: controllers });
  const layout = { driver, root: "/", perQos };
  const cgroups = await openCgroups(host, 2, never);
  const refusals: Error[] = [];
  host.files.onChange(async (change) => {
    if (change.kind === "write" && change.path === `${pods}/memory.max` && refusals[0]) throw refusals[0];
  });
  const told: string[] = [];
  const mended: number[] = [];
  const lines: string[] = [];
  const open = async () => ({ cgroups, layout, version: 2 as const });
  const qosCgroups = createQosCgroups({
    cgroups: open,
    pods: { list: () => [] },
    worker: { get: () => undefined },
    podCache: { get: () => undefined },
    allocatedPod: allocatedPod,
    pageSizes: ["2MB"],
    measures: unmeasured.cgroups,
  });
  const common = {
    cgroups: open,
    memoryQos: { throttlingFactor: 0.9, reserves: false },
    capacity: { cpus: 2, cpuList: "0,2", memoryBytes: 2 ** 30, maxPid: 1000, hugepages: { "hugepages-2Mi": 2 ** 21 } },
    enforcement: {
      enforceNodeAllocatable: ["pods"],
      kubeReserved: { cpu: "500m", memory: "256Mi" },
      systemReserved: { pid: "100" },
      kubeReservedCgroup: "",
      systemReservedCgroup: "",
      ...more,
    },
    nodeName: "n",
    events: {
      event: ({ kind, name }: ObjectReference, type: string, reason: string, message: string) =>
        void told.push([kind, name, type, reason, message].join(" ")),
    },
  };
  const reserved = createReservedCgroups(common);
  const service = createNodeAllocatable({
    ...common,
    qosCgroups,
    waitForTarget: undefined,
    pods: { reapplyLimits: async () => void mended.push(clock.now()) },
    reserved,
    clock,
    log: createLogger(0, { write: (line: string) => void lines.push(line) }),
  });
  const stop = new AbortController();
  const read = (name: string) => host.files.text(`${pods}/${name}`);
  return { clock, host, told, mended, lines, read, refusals, reserved, stop, run: () => service.run(stop.signal) };
}

test("limits all pods to the allocatable resources, creates QoS cgroups, and emits one event", async () => {
  const { clock, told, read, stop, run } = await rig();
  const running = run();
  await clock.advance(0);
  assert.deepEqual(["cpu.weight", "memory.max", "pids.max", "hugetlb.2MB.max", "besteffort/cpu.weight"].map(read), [
    "59",
    String(768 * 2 ** 20),
    "900",
    String(2 ** 21),
    "1",
  ]);
  assert.equal(read("burstable/hugetlb.2MB.max"), "4611686018427387904");
  await clock.advance(3 * minute);
  assert.deepEqual(told, ["Node n Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods"]);
  stop.abort();
  await running;
});

test("sets the cpuset to all CPUs only with systemd and cgroup v2", async () => {
  for (const [driver, path, cpus] of [
    ["systemd", "kubepods.slice", ["0,2"]],
    ["cgroupfs", "kubepods", []],
  ] as const) {
    const { clock, host, stop, run } = await rig({}, true, driver);
    const running = run();
    await clock.advance(0);
    const file = `${root}/${path}/cpuset.cpus`;
    const found = host.files.tree(root).filter((each) => each === file);
    assert.deepEqual(
      found.map((each) => host.files.text(each)),
      cpus,
    );
    stop.abort();
    await running;
  }
});

test("limits all pods to the target's full capacity if node allocatable is not enforced", async () => {
  const { clock, read, stop, run } = await rig({ enforceNodeAllocatable: ["none"] });
  const running = run();
  await clock.advance(0);
  assert.deepEqual([read("memory.max"), read("pids.max")], [String(2 ** 30), "1000"]);
  stop.abort();
  await running;
});

test("reports a rejected limit and retries it every minute, and reverts changes made by others", async () => {
  const { clock, host, told, mended, read, refusals, stop, run } = await rig();
  refusals.push(new CodedError("failed_precondition", "device or resource busy"));
  const running = run();
  await clock.advance(0);
  const failure =
    'Node n Warning FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits ["kubepods"]: device or resource busy';
  assert.deepEqual(told.splice(0), [failure]);
  assert.equal(read("besteffort/cpu.weight"), "1", "the tiers do not wait for it");
  host.files.put(`${pods}/besteffort/cpu.weight`, { data: "100" });
  await clock.advance(minute);
  assert.deepEqual([told.splice(0), read("besteffort/cpu.weight")], [[failure], "1"]);
  refusals.length = 0;
  await clock.advance(minute);
  assert.deepEqual(told, ["Node n Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods"]);
  assert.equal(mended.length, 3, "pods' cgroups are looked at in each round");
  stop.abort();
  await running;
});

test("logs missing permissions once", async () => {
  const { clock, told, lines, refusals, stop, run } = await rig();
  refusals.push(new CodedError("permission_denied", "permission denied"));
  const running = run();
  await clock.advance(3 * minute);
  assert.deepEqual([told, lines.length], [[], 1]);
  stop.abort();
  await running;
});

test("limits reserved cgroups to the reservations; fails with the kubelet's message if one does not exist", async () => {
  const enforcement = {
    enforceNodeAllocatable: ["kube-reserved", "system-reserved-compressible"],
    kubeReservedCgroup: "/kube",
    systemReservedCgroup: "/system/all",
  };
  const { clock, host, told, stop, run } = await rig(enforcement);
  for (const name of ["kube", "system/all"])
    host.files.put(`${root}/${name}/cgroup.controllers`, { data: controllers });
  const running = run();
  await clock.advance(0);
  for (const file of ["memory.max", "memory.min"])
    assert.equal(host.files.text(`${root}/kube/${file}`), String(256 * 2 ** 20), file);
  assert.deepEqual(told.slice(0, 2), [
    "Node n Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube",
    "Node n Normal NodeAllocatableEnforced Updated limits on system reserved cgroup /system/all",
  ]);
  stop.abort();
  await running;
  const missing = await rig(enforcement);
  await assert.rejects(missing.run(), (error) => {
    assert.ok(error instanceof TargetError);
    assert.equal(error.reason, "NodeAllocatable");
    assert.equal(
      error.message,
      `Failed to enforce Kube Reserved Cgroup Limits on "/kube": could not read controllers for cgroup ["kube"]: open ${root}/kube/cgroup.controllers: no such file or directory`,
    );
    return true;
  });
  assert.match(missing.told.join(), /^Node n Warning FailedNodeAllocatableEnforcement Failed to enforce Kube/);
});

test("creates the pods' cgroup first, so that the reserved cgroups get their controllers", async () => {
  const { clock, host, told, stop, run } = await rig({
    enforceNodeAllocatable: ["kube-reserved"],
    kubeReservedCgroup: "/kube",
  });
  const own = `${root}/kube/cgroup.controllers`;
  host.files.put(own, { data: "cpu memory pids\n" });
  host.files.onChange(async (change) => {
    const handsDown = change.kind === "write" && change.path === `${root}/cgroup.subtree_control`;
    if (handsDown && change.data === "+hugetlb") host.files.put(own, { data: controllers });
  });
  const running = run();
  await clock.advance(0);
  assert.equal(told[0], "Node n Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube");
  stop.abort();
  await running;
});

test("retries limiting a reserved cgroup if the target does not respond", async () => {
  const { clock, host, told, stop, run, refusals } = await rig({
    enforceNodeAllocatable: ["kube-reserved"],
    kubeReservedCgroup: "/kubepods",
  });
  host.files.put(`${pods}/cgroup.controllers`, { data: controllers });
  refusals.push(new CodedError("unavailable", "the target is away"));
  const running = run();
  await clock.advance(0);
  assert.deepEqual(told, []);
  refusals.length = 0;
  await clock.advance(minute);
  assert.equal(told[0], "Node n Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kubepods");
  stop.abort();
  await running;
});

test("starts without limits on reserved cgroups if the target is unavailable, but fails if they cannot be limited", async () => {
  const settings = { enforceNodeAllocatable: ["kube-reserved"], kubeReservedCgroup: "/kubepods" };
  const { host, told, refusals, reserved } = await rig(settings);
  host.files.put(`${pods}/cgroup.controllers`, { data: controllers });
  refusals.push(new CodedError("unavailable", "the target is away"));
  await reserved.limitIfAvailable(never);
  assert.deepEqual(told, []);
  refusals.length = 0;
  await reserved.limitIfAvailable(never);
  assert.deepEqual(told, ["Node n Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kubepods"]);
  const missing = await rig({ ...settings, kubeReservedCgroup: "/missing" });
  await assert.rejects(missing.reserved.limitIfAvailable(never), TargetError);
});

test("limits nothing with cgroupsPerQOS: false", async () => {
  const { clock, host, told, stop, run } = await rig({ enforceNodeAllocatable: ["none"] }, false);
  const running = run();
  await clock.advance(minute);
  assert.deepEqual(told, []);
  await assert.rejects(host.fs.stat(pods));
  stop.abort();
  await running;
});
