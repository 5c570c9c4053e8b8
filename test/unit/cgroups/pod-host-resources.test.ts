import assert from "node:assert/strict";
import { test } from "node:test";
import { ContainerStats } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { silentLog } from "../../../src/lib/log.ts";
import { createNodeCgroups } from "../../../src/cgroups/node-cgroups.ts";
import { createPodHostResources } from "../../../src/cgroups/pod-host-resources.ts";
import { createQosCgroups } from "../../../src/cgroups/qos-cgroups.ts";
import { fakeClock } from "../../fakes/clock.ts";
import { type FakeHost, fakeHost } from "../../fakes/host.ts";
import { unmeasured } from "../../fakes/measures.ts";
import { never } from "../../fakes/signals.ts";
import { fakeSystemd } from "../../fakes/systemd.ts";
import { type TestPod, aContainer, aPod } from "../../fakes/pods.ts";
import { type DesiredPod, type AllocatedPod, allocatedPod } from "../../../src/roles.ts";

const log = silentLog();
const cgroupfs = { driver: "cgroupfs", root: "/lab", perQos: true } as const;

function rig(
  pods: readonly TestPod[],
  layout: { readonly driver: "cgroupfs" | "systemd"; readonly root: string; readonly perQos: boolean } = cgroupfs,
  told: Readonly<Record<string, number>> = {},
  allocated: (pod: DesiredPod) => AllocatedPod = allocatedPod,
  swapping: { readonly lacks?: string; readonly limitedSwap?: boolean } = {},
) {
  const clock = fakeClock();
  const host = fakeHost({ clock });
  const changes: string[] = [];
  const heard: string[] = [];
  host.files.put("/sys/fs/cgroup/cgroup.controllers", { data: "cpu memory pids\n" });
  const store = { get: () => undefined, byName: () => undefined, list: () => pods };
  const cgroups = createNodeCgroups({
    host,
    layout: async () => layout,
    rootDir: "/root",
    measures: {
      changed: (operation) => void changes.push(operation),
      memoryReserved: () => undefined,
      runtimeOutdated: () => undefined,
    },
    clock,
    log,
  });
  const ground = createPodHostResources({
    host,
    rootDir: "/root",
    cgroups,
    qosCgroups: createQosCgroups({
      cgroups,
      pods: store,
      worker: { get: () => undefined },
      podCache: { get: () => undefined },
      allocatedPod: allocated,
      pageSizes: [],
      measures: unmeasured.cgroups,
    }),
    settings: { cpuCfsQuota: true, cpuCfsPeriodUs: 100_000 },
    podPidsLimit: 100,
    memoryQos: { throttlingFactor: 0.9, reserves: true },
    events: { event: (_, type, reason, message) => void heard.push([type, reason, message].join(" ")) },
    pageSizes: [],
    swap: { memoryBytes: 2 ** 30, swapBytes: 2 ** 29, limitedSwap: swapping.limitedSwap ?? false },
    runtime: {
      unsupportedReason: async (feature) => (feature === "swapLimit" ? swapping.lacks : undefined),
      containerStats: async (id) =>
        told[id] === undefined
          ? undefined
          : ContainerStats.fromPartial({ memory: { usageBytes: { value: BigInt(told[id]) } } }),
    },
    log,
  });
  const read = (path: string) => host.files.text(`/sys/fs/cgroup/lab/kubepods${path}`);
  return { host, ground, read, changes, heard };
}

const withResources = (requests: Record<string, string>, limits: Record<string, string> = {}) =>
  aPod({ containers: [aContainer("c", { resources: { requests, limits } })] });

test("emits an event if a pod's directories cannot be created", async () => {
  const pod = aPod({}, { uid: "u1" });
  const { ground, heard, host } = rig([pod]);
  host.files.put("/root/pods/u1", { data: "in the way" });
  await assert.rejects(ground.prepare(allocatedPod(pod), true, never));
  assert.equal(heard.length, 1);
  assert.match(heard[0] ?? "", /^Warning Failed error making pod data directories: .+/);
});

test("creates a pod's private directories once", async () => {
  const pod = aPod();
  const { host, ground } = rig([pod]);
  await ground.prepare(pod, true, never);
  for (const path of ["", "/volumes", "/plugins", "/containers"])
    assert.equal((await host.fs.stat(`/root/pods/uid-1${path}`)).mode, 0o750);
  const made = host.files.changes.length;
  await ground.prepare(pod, true, never);
  assert.equal(host.files.changes.length, made);
});

test("keeps track of all cgroups that are created concurrently", async () => {
  const asking = (cpu: string) => {
    const { spec } = withResources({ cpu });
    return ["uid-1", "uid-2", "uid-3"].map((uid) => aPod(spec, { uid }));
  };
  const pods = asking("1");
  const { ground } = rig(pods);
  await Promise.all(pods.map((pod) => ground.prepare(pod, true, never)));
  assert.deepEqual(asking("2").map(ground.groups.isStale), [true, true, true]);
});

test("sets CPU, memory and PID limits and memory protection on the cgroup of a pod whose containers all have limits", async () => {
  const pod = withResources({ cpu: "250m", memory: "64Mi" }, { cpu: "500m", memory: "128Mi" });
  const { ground, read } = rig([pod]);
  await ground.prepare(pod, true, never);
  const own = "/burstable/poduid-1";
  assert.deepEqual(
    ["cpu.max", "memory.max", "memory.low", "pids.max"].map((file) => read(`${own}/${file}`)),
    ["50000 100000", String(128 * 2 ** 20), String(64 * 2 ** 20), "100"],
  );
  assert.equal(read(`${own}/cpu.weight`), "10");
});

test("adds the pod overhead to the cgroup's shares and limits", async () => {
  const pod = withResources({ cpu: "250m", memory: "64Mi" }, { cpu: "500m", memory: "128Mi" });
  const classed = { ...pod, spec: { ...pod.spec, overhead: { cpu: "250m", memory: "32Mi" } } };
  const { ground, read } = rig([classed]);
  await ground.prepare(classed, true, never);
  const own = "/burstable/poduid-1";
  assert.deepEqual([read(`${own}/cpu.max`), read(`${own}/memory.max`)], ["75000 100000", String(160 * 2 ** 20)]);
  assert.deepEqual([read(`${own}/cpu.weight`), read("/burstable/cpu.weight")], ["20", "20"]);
});

test("sets no limit on the pod if one container has none; gives BestEffort pods the minimum CPU shares", async () => {
  const open = aPod({
    containers: [
      aContainer("a", { resources: { requests: { cpu: "1" }, limits: { cpu: "1", memory: "1Gi" } } }),
      aContainer("b"),
    ],
  });
  const { host, ground } = rig([open]);
  await ground.prepare(open, true, never);
  const files = host.files.tree("/sys/fs/cgroup/lab/kubepods/burstable/poduid-1").map((path) => path.split("/").at(-1));
  assert.deepEqual(files, ["cpu.weight", "pids.max"]);
  const nothing = aPod();
  const second = rig([nothing]);
  await second.ground.prepare(nothing, true, never);
  assert.deepEqual([second.read("/besteffort/cpu.weight"), second.read("/besteffort/poduid-1/cpu.weight")], ["1", "1"]);
});

test("sets the CPU shares of the Burstable cgroup to the sum of its pods' requests", async () => {
  const [one, two] = [
    withResources({ cpu: "1" }),
    { ...withResources({ cpu: "3" }), metadata: { ...aPod().metadata, uid: "uid-2" } },
  ];
  const pods = [one];
  const { ground, read } = rig(pods);
  await ground.prepare(one, true, never);
  assert.equal(read("/burstable/cpu.weight"), "39");
  pods.push(two);
  await ground.prepare(two, true, never);
  assert.equal(read("/burstable/cpu.weight"), "157");
});

test("removes a pod's cgroup regardless of its QoS class, and can create it again", async () => {
  const pod = withResources({ cpu: "1" });
  const { host, ground, changes } = rig([pod]);
  await ground.prepare(pod, true, never);
  // A cgroup's files go with it in the kernel.
  await host.fs.apply(
    host.files.tree("/sys/fs/cgroup/lab/kubepods/burstable/poduid-1").map((path) => ({ kind: "remove", path })),
  );
  await ground.release("uid-1", never);
  await ground.release("uid-1", never);
  assert.ok(!host.files.tree("/sys/fs/cgroup/lab").some((path) => path.includes("poduid-1")));
  await ground.prepare(pod, true, never);
  assert.ok(host.files.tree("/sys/fs/cgroup/lab").some((path) => path.endsWith("/burstable/poduid-1")));
  // Those of both tiers, and the pod's own.
  assert.deepEqual(changes, ["update", "update", "create", "destroy", "destroy", "create"]);
});

/** What the target's shell tells of cgroups. */
const telling = (files: Readonly<Record<string, string>>) =>
  Object.entries({ "/proc/meminfo": "MemTotal: 1 kB", ...files })
    .map(([name, text]) => `==> ${name} <==\n${text}\n`)
    .join("\n");

test("reads limits and usage of a running pod's cgroup, and sets the limits", async () => {
  const pod = withResources({ cpu: "250m", memory: "64Mi" }, { cpu: "500m", memory: "128Mi" });
  const { host, ground, read } = rig([pod], cgroupfs, { "run-2": 7 });
  const own = "./lab/kubepods/burstable/poduid-1";
  const said = telling({
    [`${own}/cpu.stat`]: "usage_usec 5",
    [`${own}/cpu.max`]: "50000 100000",
    [`${own}/cpu.weight`]: "10",
    [`${own}/memory.current`]: "4096",
    [`${own}/memory.stat`]: "inactive_file 0",
    [`${own}/memory.max`]: "134217728",
    [`${own}/run-1/memory.current`]: "1024",
    [`${own}/run-1/memory.stat`]: "inactive_file 1000",
    [`${own}/crio-run4/memory.current`]: "2048",
    [`${own}/crio-run4/memory.stat`]: "inactive_file 0",
  });
  host.program("sh", (_args, { stdout }) => {
    stdout.write(said);
    return 0;
  });
  const seen = ["run-1", "run-2", "run-3", "run4"];
  assert.equal((await ground.groups.read(pod, seen, never)).limits, undefined, "nothing was made here");
  await ground.prepare(pod, true, never);
  const { limits, memory, containers } = await ground.groups.read(pod, seen, never);
  assert.deepEqual([limits?.memoryBytes, limits?.cpuQuotaUs, limits?.cpuPeriodUs], [2 ** 27, 50_000, 100_000]);
  assert.deepEqual([memory, Object.fromEntries(containers)], [4096, { "run-1": 1024, "run-2": 7, run4: 2048 }]);
  assert.deepEqual(ground.groups.wanted(pod), {
    cpuShares: 256,
    cpuPeriodUs: 100_000,
    cpuQuotaUs: 50_000,
    memoryBytes: 2 ** 27,
    memoryLowBytes: 2 ** 26,
    pids: 100,
  });
  await ground.groups.set(pod, { memoryBytes: 2 ** 28 }, never);
  assert.deepEqual(
    [read("/burstable/poduid-1/memory.max"), read("/burstable/poduid-1/cpu.max")],
    [String(2 ** 28), "50000 100000"],
  );
  const larger = withResources({ cpu: "250m", memory: "64Mi" }, { cpu: "500m", memory: "256Mi" });
  assert.deepEqual([ground.groups.isStale(pod), ground.groups.isStale(larger)], [true, false]);
});

test("updates the Burstable CPU shares when allocations change", async () => {
  const pod = withResources({ cpu: "3" });
  const given = { now: withResources({ cpu: "1" }) };
  const { ground, read } = rig([pod], cgroupfs, {}, () => given.now);
  await ground.prepare(given.now, true, never);
  assert.equal(read("/burstable/cpu.weight"), "39");
  given.now = pod;
  await ground.groups.set(pod, { cpuShares: 3072 }, never);
  assert.deepEqual([read("/burstable/cpu.weight"), read("/burstable/poduid-1/cpu.weight")], ["118", "118"]);
});

test("updates memory protection of a pod and its QoS class when its request changes", async () => {
  const pod = withResources({ cpu: "1", memory: "64Mi" });
  const given = { now: pod };
  const { ground, read } = rig([pod], cgroupfs, {}, () => given.now);
  await ground.prepare(pod, true, never);
  given.now = withResources({ cpu: "1", memory: "96Mi" });
  assert.deepEqual([ground.groups.isStale(pod), ground.groups.isStale(given.now)], [false, true]);
  const { memoryLowBytes = 0 } = ground.groups.wanted(given.now);
  given.now = withResources({ cpu: "3", memory: "96Mi" });
  await ground.groups.set(given.now, { memoryLowBytes }, never);
  assert.equal(read("/burstable/poduid-1/memory.low"), String(96 * 2 ** 20));
  assert.equal(read("/burstable/cpu.weight"), "118");
});

test("limits swap on the pod's cgroup if the runtime cannot limit it per container, even after a resize", async () => {
  const swapOf = async (swapping: NonNullable<Parameters<typeof rig>[4]>, isLimited = true) => {
    const pod = withResources({ memory: "128Mi" });
    const { host, ground } = rig([pod], cgroupfs, {}, allocatedPod, swapping);
    host.files.put("/proc/self/cgroup", { data: "0::/user\n" });
    if (isLimited) host.files.put("/sys/fs/cgroup/user/memory.swap.max", { data: "max\n" });
    await ground.prepare(pod, true, never);
    const path = "/sys/fs/cgroup/lab/kubepods/burstable/poduid-1/memory.swap.max";
    const isThere = host.files.tree("/sys/fs/cgroup").includes(path);
    const larger = withResources({ memory: "256Mi" });
    return { bytes: isThere ? host.files.text(path) : undefined, ground, larger };
  };
  const why = "only beside memory";
  assert.equal((await swapOf({})).bytes, undefined, "the runtime limits each container");
  assert.equal((await swapOf({ lacks: why })).bytes, "0", "no swap");
  assert.equal((await swapOf({ lacks: why }, false)).bytes, undefined, "the target cannot limit swap");
  const { bytes, ground, larger } = await swapOf({ lacks: why, limitedSwap: true });
  assert.equal(bytes, String(2 ** 26));
  assert.equal(ground.groups.wanted(larger).swapBytes, 2 ** 27);
});

test("with systemd, creates a slice with limits for each pod, and removes it with the pod", async () => {
  const pod = withResources({ cpu: "250m", memory: "64Mi" }, { cpu: "500m", memory: "128Mi" });
  const { host, ground, changes } = rig([pod], { driver: "systemd", root: "/", perQos: true });
  const { units, heard } = await fakeSystemd(host, {});
  await ground.prepare(pod, true, never);
  const slice = "kubepods-burstable-poduid_1.slice";
  assert.deepEqual([...units], ["kubepods.slice", "kubepods-besteffort.slice", "kubepods-burstable.slice", slice]);
  assert.deepEqual(heard.at(-1)?.properties?.slice(-6), [
    `MemoryMax=t:${128 * 2 ** 20}`,
    `MemoryLow=t:${64 * 2 ** 20}`,
    "CPUWeight=t:10",
    "CPUQuotaPeriodUSec=t:100000",
    "CPUQuotaPerSecUSec=t:500000",
    "TasksMax=t:100",
  ]);
  assert.equal(host.files.text(`/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/${slice}/pids.max`), "100");
  // The kernel removes a cgroup's files with it.
  for (const file of host.files.tree("/sys/fs/cgroup").filter((path) => path.includes(`${slice}/`)))
    await host.fs.apply([{ kind: "remove", path: file }]);
  await ground.release("uid-1", never);
  assert.ok(!units.has(slice));
  assert.deepEqual(changes, ["update", "update", "create", "destroy"]);
});

test("starts and terminates pods without cgroups if the target's user may not create them", async () => {
  const pod = withResources({ cpu: "250m" });
  const { host, ground, heard } = rig([pod]);
  host.files.put("/proc/self/status", { data: "CapEff:\t0000000000000000\n" });
  host.files.onChange((change) => {
    if ("path" in change && change.path.startsWith("/sys/")) throw new CodedError("permission_denied", change.path);
  });
  await ground.prepare(pod, true, never);
  await ground.release("uid-1", never);
  assert.equal((await host.fs.stat("/root/pods/uid-1")).kind, "directory");
  host.files.onChange((change) => {
    if ("path" in change && change.path.startsWith("/sys/")) throw new CodedError("resource_exhausted", change.path);
  });
  assert.deepEqual(heard, []);
  await assert.rejects(ground.prepare(pod, true, never), { code: "resource_exhausted" });
  assert.equal(heard.length, 1);
});

test("fails a pod with the kubelet's message if cgroups are read-only even for a privileged user", async () => {
  const pod = withResources({ cpu: "250m" });
  const { host, ground, heard } = rig([pod]);
  host.files.onChange((change) => {
    if ("path" in change && change.path.startsWith("/sys/")) throw new CodedError("permission_denied", "read-only");
  });
  await assert.rejects(ground.prepare(pod, true, never), { code: "failed_precondition" });
  const names = "[lab kubepods burstable poduid-1]";
  assert.deepEqual(heard, [
    `Warning FailedCreatePodContainer unable to ensure pod container exists: failed to create container for ${names} : read-only`,
  ]);
});

/** Removes a directory with the files that the kernel would remove with it. */
async function takeAway(host: FakeHost, path: string): Promise<void> {
  for (const each of [...host.files.tree(path).toReversed(), path])
    await host.fs.apply([{ kind: "remove", path: each }]);
}

test("restores the limits of a pod cgroup that others removed, whether or not the runtime has re-created it", async () => {
  const [pod, other] = ["uid-1", "uid-2"].map((uid) => aPod(withResources({ cpu: "250m" }).spec, { uid }));
  assert.ok(pod && other);
  const { host, ground, read } = rig([pod, other]);
  for (const each of [pod, other]) await ground.prepare(each, true, never);
  await ground.reapplyLimits(never);
  const own = "/sys/fs/cgroup/lab/kubepods/burstable/poduid-1";
  await takeAway(host, own);
  const before = host.files.changes.length;
  await ground.reapplyLimits(never);
  assert.equal(read("/burstable/poduid-1/cpu.weight"), "10");
  await ground.reapplyLimits(never);
  await takeAway(host, own);
  await host.fs.apply([{ kind: "mkdir", path: own }]);
  await ground.reapplyLimits(never);
  assert.equal(read("/burstable/poduid-1/cpu.weight"), "10");
  await ground.reapplyLimits(never);
  const after = host.files.changes.slice(before).map((change) => ("path" in change ? change.path : ""));
  assert.ok(!after.some((path) => path.includes("uid-2")), "one that is there stays as it is");
  await takeAway(host, own.replace("uid-1", "uid-2"));
  await ground.release("uid-2", never);
  await ground.reapplyLimits(never);
  assert.ok(!host.files.tree("/sys/fs/cgroup/lab").some((path) => path.includes("uid-2")));
});

test("kills leftover processes in a terminated pod's cgroup", async () => {
  const pod = withResources({ cpu: "250m" });
  const { host, ground } = rig([pod]);
  await ground.prepare(pod, true, never);
  const own = "/sys/fs/cgroup/lab/kubepods/burstable/poduid-1";
  let killed: readonly string[] = [];
  host.program("sh", async (args, { stdout }) => {
    killed = args.slice(3);
    stdout.write("42 43\n");
    await takeAway(host, own);
    return 0;
  });
  await ground.release("uid-1", never);
  assert.deepEqual(killed, [own]);
});

test("sets pod-level limits on the cgroup, regardless of container limits", async () => {
  const containers = [aContainer("a"), aContainer("b", { resources: { limits: { memory: "1Gi" } } })];
  const pod = aPod({ containers, resources: { requests: { cpu: "250m" }, limits: { cpu: "500m", memory: "2Gi" } } });
  const { ground, read } = rig([pod]);
  await ground.prepare(pod, true, never);
  const own = "/burstable/poduid-1";
  assert.deepEqual([read(`${own}/cpu.max`), read(`${own}/memory.max`)], ["50000 100000", String(2 ** 31)]);
});
