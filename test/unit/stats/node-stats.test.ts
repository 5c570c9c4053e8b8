import assert from "node:assert/strict";
import { mock, test } from "node:test";
import { ContainerStats, PodSandboxStats } from "../../../src/gen/cri.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { podUidLabel, containerNameLabel } from "../../../src/pod/labels.ts";
import { parseExposition, type Sample } from "../metrics/exposition.ts";
import { facts, meanwhile, rigged, running, signal, targetFiles } from "./rig.ts";

const time = "2026-01-01T00:00:01Z";
const main = "./kubepods/burstable/poduid-1/main/cpu.stat";

interface Shown {
  readonly node: Record<string, unknown>;
  readonly pods: readonly (Record<string, unknown> & { readonly containers: readonly Record<string, unknown>[] })[];
}
const shown = (answer: object) => answer as Shown;
const cpuOf = (of: Record<string, unknown> | undefined) => of?.["cpu"] as Record<string, number> | undefined;

test("summary: has the node, running pods and their containers, with usage and start time", async () => {
  const t = await rigged({
    "volumes/scratch": 3,
    "volumes/memory": 50,
    "volumes/huge": 4,
    "uid-1/main": 2,
    "uid-1/gone": 9,
    "etc-hosts": 1,
  });
  t.containerStats = [
    ContainerStats.fromPartial({
      attributes: { metadata: { attempt: 1 }, labels: { [podUidLabel]: "uid-1", [containerNameLabel]: "main" } },
      writableLayer: { usedBytes: { value: 1000n }, inodesUsed: { value: 4n } },
    }),
  ];
  const { node, pods } = shown(await meanwhile(t, t.stats.summary(false, signal)));
  const [pod, ...others] = pods;
  assert.deepEqual(others, []);
  assert.equal(node["nodeName"], "node");
  assert.equal(node["startTime"], "2025-12-31T23:58:20Z");
  assert.deepEqual(node["cpu"], { time, usageNanoCores: 0, usageCoreNanoSeconds: 90e9 });
  assert.deepEqual(node["memory"], {
    time,
    availableBytes: 500 * 1024,
    usageBytes: 600 * 1024,
    workingSetBytes: 500 * 1024,
    rssBytes: 0,
    pageFaults: 0,
    majorPageFaults: 0,
  });
  assert.deepEqual(node["swap"], { time, swapAvailableBytes: 40 * 1024, swapUsageBytes: 10 * 1024 });
  const zero = { avg10: 0, avg60: 0, avg300: 0, total: 0 };
  assert.deepEqual(node["io"], { time, psi: { some: { ...zero, avg10: 1, total: 2_000_000 }, full: zero } });
  assert.deepEqual(node["rlimit"], { time, maxpid: 4000, curproc: 77 });
  const eth0 = (rx: number, tx: number) => ({ name: "eth0", rxBytes: rx, rxErrors: 0, txBytes: tx, txErrors: 0 });
  assert.deepEqual(node["network"], { time, ...eth0(9, 8), interfaces: [eth0(9, 8)] });
  const disk = node["fs"] as Record<string, number>;
  assert.equal(disk["usedBytes"], 45 * 2 ** 30, "the root reserve is neither used nor available");
  const [of] = node["systemContainers"] as [Record<string, unknown>];
  assert.deepEqual([of["name"], (of["memory"] as { usageBytes: number }).usageBytes], ["pods", 4000]);

  assert.deepEqual(pod?.["podRef"], { name: "p", namespace: "default", uid: "uid-1" });
  assert.equal(pod?.["startTime"], "1970-01-01T00:00:50Z", "creation of its sandbox");
  assert.deepEqual(pod?.["process_stats"], { process_count: 2 }, "without the sandbox's process");
  const rx1 = { ...eth0(70, 60), rxErrors: 1, txErrors: 2 };
  assert.deepEqual(pod?.["network"], { time, ...rx1, interfaces: [rx1, { ...eth0(1, 1), name: "net1" }] });
  const mebibyte = 2 ** 20;
  const fs = pod?.["ephemeral-storage"] as Record<string, number>;
  assert.equal(fs["usedBytes"], 6 * mebibyte + 1000, "on the node's disk, of running containers");
  const volumes = pod?.["volume"] as readonly Record<string, unknown>[];
  assert.deepEqual(
    volumes.map(({ name, usedBytes, inodesUsed }) => [name, usedBytes, inodesUsed]),
    [
      ["scratch", 3 * mebibyte, 3],
      ["memory", 50 * mebibyte, 50],
      ["huge", 4 * mebibyte, 4],
    ],
  );
  const [container, ...ended] = pod.containers;
  assert.deepEqual(ended, []);
  assert.deepEqual([container?.["name"], container?.["startTime"]], ["main", "1970-01-01T00:00:58Z"], "it was made");
  const limit = 80 * mebibyte;
  const memory = { time, availableBytes: limit - 2000, usageBytes: 2100, workingSetBytes: 2000, rssBytes: 5 };
  assert.deepEqual(container?.["memory"], memory);
  assert.equal((container["rootfs"] as Record<string, number>)["usedBytes"], 1000);
  assert.equal((container["logs"] as Record<string, number>)["usedBytes"], 2 * mebibyte);
});

test("v2: computes the machine's memory from the root's memory.stat (anon and file)", async () => {
  const t = await rigged();
  t.files["./memory.stat"] = "anon 5000\nfile 900\nkernel 70\ninactive_file 600\npgfault 7\npgmajfault 1";
  const { node } = shown(await meanwhile(t, t.stats.summary(true, signal)));
  const memory = { availableBytes: 1000 * 1024 - 5300, usageBytes: 5900, workingSetBytes: 5300, rssBytes: 5000 };
  assert.deepEqual(node["memory"], { time, ...memory, pageFaults: 7, majorPageFaults: 1 });
});

test("counts only volumes on the node's disk towards a pod's ephemeral storage", async () => {
  const t = await rigged({ "volumes/scratch": 3, "volumes/memory": 50, "volumes/huge": 4 });
  const usages = await meanwhile(t, t.stats.usages.now(true, signal));
  assert.deepEqual([...(usages.get("uid-1")?.volumes ?? [])], [["scratch", { bytes: 3 * 2 ** 20, inodes: 3 }]]);
});

test("only_cpu_and_memory omits networks and disks, and walks no disk", async () => {
  const t = await rigged();
  const { node, pods } = shown(await meanwhile(t, t.stats.summary(true, signal)));
  assert.deepEqual(Object.keys(node), ["nodeName", "systemContainers", "startTime", "cpu", "memory", "swap"]);
  assert.deepEqual(Object.keys(pods[0] ?? {}), ["podRef", "startTime", "containers", "cpu", "memory", "swap"]);
  assert.deepEqual(t.calls, ["cgroups", "cgroups"]);
});

test("computes CPU usage between two samples; the first request takes both", async () => {
  const t = await rigged();
  const nanoCores = async () => {
    const { pods } = shown(await meanwhile(t, t.stats.summary(true, signal)));
    return cpuOf(pods[0]?.containers[0])?.["usageNanoCores"];
  };
  assert.equal(await nanoCores(), 0);
  t.files[main] = "usage_usec 4000000\n";
  assert.equal(await nanoCores(), 0, "a fresh sample is reused");
  assert.equal(t.calls.length, 2);
  await t.clock.advance(9_000);
  assert.equal(await nanoCores(), 200_000_000, "two seconds of ten: a fifth of a core");
  assert.equal(t.calls.length, 3);
});

test("a container that has just started shows a CPU usage of 0", async () => {
  const t = await rigged();
  const before = t.files;
  t.files = Object.fromEntries(Object.entries(before).filter(([name]) => !name.includes("/main/")));
  await meanwhile(t, t.stats.summary(true, signal));
  t.files = before;
  await t.clock.advance(10_000);
  const { pods } = shown(await meanwhile(t, t.stats.summary(true, signal)));
  assert.equal(cpuOf(pods[0]?.containers[0])?.["usageNanoCores"], 0);
});

test("does not average CPU usage over a long pause between requests", async () => {
  const t = await rigged();
  const nanoCores = async () => {
    const { pods } = shown(await meanwhile(t, t.stats.summary(true, signal)));
    return cpuOf(pods[0]?.containers[0])?.["usageNanoCores"];
  };
  await nanoCores();
  await t.clock.advance(600_000);
  t.files[main] = "usage_usec 602000000\n";
  assert.equal(await nanoCores(), 0, "the usage before the pause does not count");
  assert.equal(t.calls.length, 4);
});

test("measures only on request, and once for concurrent requests", async () => {
  const t = await rigged();
  await t.clock.advance(600_000);
  assert.deepEqual(t.calls, []);
  const asked = Promise.all([t.stats.resource(signal), t.stats.resource(signal), t.stats.summary(true, signal)]);
  await meanwhile(t, asked);
  assert.deepEqual(t.calls, ["cgroups", "cgroups"]);
  await t.clock.advance(600_000);
  assert.equal(t.calls.length, 2);
});

test("walks disks in the background: requests get the last result, and wait for the first only", async () => {
  const t = await rigged({ "volumes/scratch": 3 });
  const used = async () => {
    const { pods } = shown(await meanwhile(t, t.stats.summary(false, signal)));
    const [scratch] = (pods[0]?.["volume"] ?? []) as readonly { usedBytes: number }[];
    return scratch?.usedBytes;
  };
  assert.equal(await used(), 3 * 2 ** 20);
  const walks = () => t.calls.filter((call) => call === "du").length;
  assert.equal(walks(), 2);
  await t.clock.advance(50_000);
  await used();
  assert.equal(walks(), 2, "still new");
  t.host.program("du", () => new Promise(() => {}));
  await t.clock.advance(15_000);
  assert.equal(await used(), 3 * 2 ** 20, "does not wait for the running walk");
});

test("answers without disk usage when the first walk takes too long", async () => {
  const t = await rigged();
  t.host.program("du", () => new Promise(() => {}));
  const asked = t.stats.summary(false, signal);
  await t.clock.advance(6_000);
  const { node, pods } = shown(await asked);
  assert.deepEqual([node["fs"], pods[0]?.["volume"]], [undefined, undefined]);
  assert.ok(node["cpu"]);
});

test("a negative volumeStatsAggPeriod disables disk usage", async () => {
  const t = await rigged({}, -1);
  await meanwhile(t, t.stats.summary(false, signal));
  assert.ok(!t.calls.includes("du"));
});

test("falls back to the runtime's stats for a container whose cgroup is not found", async () => {
  const t = await rigged();
  for (const name of Object.keys(t.files)) if (name.includes("poduid-1")) delete t.files[name];
  const of = (ms: bigint) => ({
    cpu: { usageCoreNanoSeconds: { value: ms * 1_000_000n } },
    memory: { workingSetBytes: { value: 500n }, usageBytes: { value: 600n }, availableBytes: { value: 0n } },
  });
  t.containerStats = [ContainerStats.fromPartial({ attributes: { id: "main" }, ...of(2000n) })];
  const seen = async () => {
    const [pod] = shown(await meanwhile(t, t.stats.summary(true, signal))).pods;
    return [pod?.["cpu"], cpuOf(pod?.containers[0])?.["usageCoreNanoSeconds"]];
  };
  assert.deepEqual(await seen(), [undefined, 2e9], "a runtime that does not measure pods");
  t.podStats = [
    PodSandboxStats.fromPartial({
      attributes: { id: "sandbox", labels: { [podUidLabel]: "uid-1" } },
      linux: { ...of(7000n), containers: [{ attributes: { id: "main" }, ...of(3000n) }] },
    }),
  ];
  await t.clock.advance(10_000);
  const cpu = { time: "2026-01-01T00:00:11Z", usageCoreNanoSeconds: 7e9 };
  assert.deepEqual(await seen(), [cpu, 3e9]);
});

test("measures containers and the network of a pod of CRI-O, whose cgroups are named crio-ID and whose sandbox has no process", async () => {
  const t = await rigged();
  t.files = Object.fromEntries(
    Object.entries(t.files).map(([name, text]) => [
      name.replace(/\/(sandbox|main)\//, "/crio-$1/").replace("/proc/55/", "/proc/56/"),
      name.endsWith("/sandbox/cgroup.procs") ? "" : text,
    ]),
  );
  const { pods } = shown(await meanwhile(t, t.stats.summary(false, signal)));
  const usage = pods[0]?.containers.map((one) => (one["memory"] as { usageBytes?: number }).usageBytes);
  const network = pods[0]?.["network"] as { rxBytes?: number } | undefined;
  assert.deepEqual([usage, network?.rxBytes], [[2100], 70]);
});

test("reports cgroup usage when the runtime does not answer", async () => {
  const t = await rigged();
  for (const name of Object.keys(t.files)) if (name.includes("/main/")) delete t.files[name];
  t.runtimeFails = true;
  const { pods } = shown(await meanwhile(t, t.stats.summary(true, signal)));
  assert.equal(cpuOf(pods[0])?.["usageCoreNanoSeconds"], 3e9);
  assert.deepEqual(Object.keys(pods[0]?.containers[0] ?? {}), ["name", "startTime"]);
  assert.match(t.logged(), /cannot query the runtime for usage/);
});

test("omits network stats of hostNetwork pods, and terminated pods", async () => {
  const t = await rigged();
  t.pods = [running(true), { ...running(), sandboxes: [], containers: [] }];
  const { pods } = shown(await meanwhile(t, t.stats.summary(false, signal)));
  assert.deepEqual(
    pods.map(({ network }) => network),
    [undefined],
  );
});

test("/metrics/resource: has the metrics that metrics-server reads, with timestamps", async () => {
  const t = await rigged();
  const families = parseExposition(await meanwhile(t, t.stats.resource(signal)));
  const at = t.clock.now();
  const container = { container: "main", namespace: "default", pod: "p" };
  const pod = { namespace: "default", pod: "p" };
  const only = (name: string) => families.get(name)?.samples;
  const sample = (name: string, labels: Sample["labels"], value: number): Sample[] => [{ name, labels, value, at }];
  for (const [name, labels, value] of [
    ["node_cpu_usage_seconds_total", {}, 90],
    ["node_memory_working_set_bytes", {}, 500 * 1024],
    ["node_swap_usage_bytes", {}, 10 * 1024],
    ["pod_cpu_usage_seconds_total", pod, 3],
    ["pod_memory_working_set_bytes", pod, 2900],
    ["container_cpu_usage_seconds_total", container, 2],
    ["container_memory_working_set_bytes", container, 2000],
    ["container_swap_usage_bytes", container, 0],
    ["container_swap_limit_bytes", container, 0],
  ] as const)
    assert.deepEqual(only(name), sample(name, labels, value));
  const started = { name: "container_start_time_seconds", labels: container, value: 58 };
  assert.deepEqual(only(started.name), [started]);
  assert.equal(only("resource_scrape_error")?.[0]?.value, 0);
  assert.equal(families.get("node_cpu_usage_seconds_total")?.type, "counter");
});

test("answers with an error when usage cannot be measured, and logs the cause", async () => {
  const t = await rigged();
  t.files = {};
  assert.equal(parseExposition(await t.stats.resource(signal)).get("resource_scrape_error")?.samples[0]?.value, 1);
  assert.equal(parseExposition(await t.stats.cadvisor(signal)).get("container_scrape_error")?.samples[0]?.value, 1);
  await assert.rejects(t.stats.summary(false, signal), { code: "failed_precondition" });
  assert.match(t.logged(), /cannot measure/);
});

test("/metrics/cadvisor: has rows for the machine, for cgroups, pods, sandboxes and containers", async () => {
  const t = await rigged();
  t.files = { ...targetFiles(), "./kubepods/burstable/poduid-1/main/cpu.max": "50000 100000" };
  t.files["./cgroup.procs"] = "2\n3\n4";
  t.files["./kubepods/burstable/poduid-1/pids.current"] = "5";
  t.files[main] = `${t.files[main]}nr_bursts 3\nburst_usec 250000\n`;
  const text = await meanwhile(t, t.stats.cadvisor(signal));
  const families = parseExposition(text);
  const rowsOf = (name: string) =>
    (families.get(name)?.samples ?? []).map(({ labels, value }) => [labels["id"], labels["container"], value]);
  const pod = "/kubepods/burstable/poduid-1";
  assert.deepEqual(rowsOf("container_cpu_usage_seconds_total"), [
    ["/", "", 90],
    ["/kubepods", "", 5],
    [pod, "", 3],
    [`${pod}/sandbox`, "", 0.001],
    [`${pod}/main`, "main", 2],
  ]);
  assert.deepEqual(families.get("container_memory_working_set_bytes")?.samples.at(-1), {
    name: "container_memory_working_set_bytes",
    labels: { id: `${pod}/main`, name: "main", image: "busybox:1", container: "main", pod: "p", namespace: "default" },
    value: 2000,
    at: t.clock.now(),
  });
  const network = families.get("container_network_receive_bytes_total")?.samples;
  assert.deepEqual(
    network?.map(({ labels, value }) => [labels["id"], labels["interface"], value]),
    [
      ["/", "eth0", 9],
      [`${pod}/sandbox`, "eth0", 70],
      [`${pod}/sandbox`, "net1", 1],
    ],
  );
  assert.deepEqual(rowsOf("container_spec_cpu_quota"), [[`${pod}/main`, "main", 50_000]]);
  assert.deepEqual(rowsOf("container_processes"), [
    ["/", "", 3],
    ["/kubepods", "", 0],
    [pod, "", 0],
    [`${pod}/sandbox`, "", 1],
    [`${pod}/main`, "main", 2],
  ]);
  assert.deepEqual(rowsOf("container_threads"), [
    ["/", "", 3],
    [pod, "", 5],
    [`${pod}/main`, "main", 4],
  ]);
  assert.deepEqual(rowsOf("container_cpu_cfs_burst_periods_total"), [[`${pod}/main`, "main", 3]]);
  assert.deepEqual(rowsOf("container_cpu_cfs_burst_seconds_total"), [[`${pod}/main`, "main", 0.25]]);
  assert.deepEqual(rowsOf("container_spec_memory_limit_bytes").at(-1), [`${pod}/main`, "main", 80 * 2 ** 20]);
  const [read] = families.get("container_fs_reads_bytes_total")?.samples ?? [];
  assert.deepEqual([read?.labels["device"], read?.value], ["/dev/sda", 4096]);
  const limits = families.get("container_fs_limit_bytes")?.samples;
  assert.deepEqual(
    limits?.map(({ labels }) => [labels["id"], labels["device"]]),
    [
      ["/", "/dev/var/lib/kubelet"],
      ["/", "/dev/images"],
    ],
  );
  assert.deepEqual(
    families.get("container_fs_usage_bytes")?.samples.map(({ value }) => value / 2 ** 30),
    [45, 45],
    "all that is taken, not what the runtime's images take",
  );
  assert.deepEqual(rowsOf("container_health_state").at(-1), [`${pod}/main`, "main", -1]);
  assert.equal(families.get("container_pressure_io_waiting_seconds_total")?.samples[0]?.value, 2);
});

test("/metrics/cadvisor: describes the machine", async () => {
  const t = await rigged();
  const families = parseExposition(await meanwhile(t, t.stats.cadvisor(signal)));
  const values = (name: string) => (families.get(`machine_${name}`)?.samples ?? []).map(({ value }) => value);
  assert.deepEqual(values("cpu_cores"), [facts.cpus]);
  assert.deepEqual(values("cpu_physical_cores"), [2], "by their numbers");
  assert.deepEqual(values("cpu_sockets"), [2]);
  assert.deepEqual(values("cpu_books"), [0]);
  assert.deepEqual(values("scrape_error"), [0]);
  const modes = families.get("machine_nvm_capacity")?.samples.map(({ labels, value }) => [labels["mode"], value]);
  assert.deepEqual(modes, [
    ["memory_mode", 0],
    ["app_direct_mode", 0],
  ]);
});

test("/metrics/cadvisor: reads the CPU topology once, and reports it for an unreachable target", async () => {
  const t = await rigged();
  await meanwhile(t, t.stats.cadvisor(signal));
  const read = mock.method(t.host.fs, "readFile", async () => {
    throw new CodedError("unavailable", "the target is out of reach");
  });
  t.files = {};
  await t.clock.advance(20_000);
  const families = parseExposition(await t.stats.cadvisor(signal));
  assert.equal(families.get("container_scrape_error")?.samples[0]?.value, 1);
  assert.equal(families.get("machine_cpu_physical_cores")?.samples[0]?.value, 2);
  assert.equal(read.mock.callCount(), 0);
});
