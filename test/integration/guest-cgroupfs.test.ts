import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { weightOf } from "../../src/host/cgroups.ts";
import type { Node, Pod, Resources } from "../../src/objects.ts";
import { type Agent, type AgentOptions, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { secondRuntimeHandler } from "../harness/containerd-config.ts";
import { commandLine } from "../harness/graftlet-run.ts";
import { cgroupsOf, cgroupValue } from "../harness/pod-machine.ts";
import { type Pods, containerId, firstProcess, openPods, outgrowMemory, shell, statusOf } from "../harness/pods.ts";
import { hasDocker } from "../harness/runtime-daemon.ts";
import { changeDriver } from "../harness/runtime-driver.ts";
import { patience } from "../harness/wait.ts";

const Mi = 2 ** 20;
/** As the kernel counts memory. */
const inPages = (bytes: number) => String(Math.floor(bytes / 4096) * 4096);
/** A round of the agent's, and something to spare, milliseconds. */
const roundMs = 90_000;

/** Settings of the node; the runtime says who makes cgroups. */
const config = {
  cgroupDriver: undefined,
  podPidsLimit: 200,
  reservedSystemCPUs: "1",
  // CPUs that are reserved by number stand in its place.
  kubeReserved: { cpu: "700m", memory: "128Mi" },
  systemReserved: { memory: "128Mi", pid: "1000" },
  memorySwap: { swapBehavior: "LimitedSwap" },
  featureGates: { MemoryQoS: true },
  memoryReservationPolicy: "TieredReservation",
};

describe("cgroup v2 with the cgroupfs driver on a machine with systemd", { timeout: patience(300_000) }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent | undefined;

  const start = async (options: AgentOptions = {}) => {
    agent = await startGraftlet(cluster, { ...options, config: { ...config, ...options.config } });
  };
  const there = (script: string) => cluster.mustRunInside(["sh", "-ec", script]);
  const fileOf = (cgroup: string, file = "") => join(cluster.root, "sys/fs/cgroup", cgroup, file);
  const read = (cgroup: string, file: string) => readFileSync(fileOf(cgroup, file), "utf8").trim();
  const onDocker = () => hasDocker(cluster.provider);
  /** A limit of a pod's container, of the pod (1 level up), or of all pods of its class (2). */
  const limit = (pod: Pod, file: string, levelsUp = 0) =>
    cgroupValue(cluster, firstProcess(cluster, pod), [file], levelsUp);
  const tiers: Readonly<Record<string, string>> = { Burstable: "/burstable", BestEffort: "/besteffort" };
  const cgroupOf = ({ metadata, status }: Pod) => `/kubepods${tiers[status?.qosClass ?? ""] ?? ""}/pod${metadata.uid}`;
  const sleeping = (resources: Resources = {}) => ({ containers: [shell("exec sleep 3600", { resources })] });
  const alike = (amounts: Readonly<Record<string, string>>): Resources => ({ requests: amounts, limits: amounts });
  /** All limits below the cgroup of all pods, a line each. */
  const inForce = async () => {
    const memory = ["max", "swap.max", "oom.group", "high", "min", "low"].map((file) => `memory.${file}`);
    const files = [...memory, "cpu.max", "cpu.weight", "pids.max", "hugetlb.*.max"];
    const named = files.map((name) => `-name ${name}`).join(" -o ");
    return (await there(`find /sys/fs/cgroup/kubepods ${named} | sort | xargs grep -H .`)).trim().split("\n");
  };

  before(async () => {
    cluster = await startCluster({ name: "guest-cgroupfs" });
    pods = await openPods(cluster);
    await there("sysctl -qw vm.nr_hugepages=8");
    await changeDriver(cluster, "cgroupfs");
    await pods.api.create("/apis/node.k8s.io/v1/runtimeclasses", {
      apiVersion: "node.k8s.io/v1",
      kind: "RuntimeClass",
      metadata: { name: "padded" },
      handler: secondRuntimeHandler,
      overhead: { podFixed: { cpu: "50m", memory: "16Mi" } },
    });
    await start();
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("enforces node allocatable for all pods together, including reserved CPUs, and reports it", async () => {
    const said = await there("cat /proc/meminfo /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max; nproc");
    const memory = Number(/^MemTotal:\s+(\d+) kB/m.exec(said)?.[1]) * 1024;
    const [pidMax = 0, threadsMax = 0, cpus = 0] = said.trim().split("\n").slice(-3).map(Number);
    assert.equal(cpus, 2);
    await cluster.waitFor(
      "the limit of all pods",
      () => existsSync(fileOf("kubepods")) && read("kubepods", "pids.max") !== "max",
    );
    assert.equal(read("kubepods", "memory.max"), inPages(memory - 256 * Mi));
    assert.equal(read("kubepods", "cpu.weight"), String(weightOf(1024)), "one CPU of two");
    assert.equal(read("kubepods", "pids.max"), String(Math.min(pidMax, threadsMax) - 1000));
    assert.equal(read("kubepods", "hugetlb.2MB.max"), String(16 * Mi));
    assert.equal(existsSync(fileOf("kubepods.slice")), false, "systemd made nothing");
    const { status } = await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
    assert.deepEqual([status?.capacity?.["cpu"], status?.allocatable?.["cpu"]], ["2", "1"]);
    // Less what is reserved, the threshold of eviction, and huge pages.
    assert.equal(status?.allocatable?.["memory"], `${(memory - (256 + 100 + 16) * Mi) / 1024}Ki`);
  });

  test("sets weights and limits of QoS classes, pods and containers", async () => {
    const burst: Resources = { requests: { cpu: "200m", memory: "32Mi" }, limits: { cpu: "400m", memory: "64Mi" } };
    await Promise.all([
      pods.create("huge", sleeping(alike({ cpu: "100m", memory: "64Mi", "hugepages-2Mi": "4Mi" }))),
      pods.create("burstable", sleeping(burst)),
      pods.create("besteffort", sleeping()),
    ]);
    const [huge, burstable, besteffort] = [
      await pods.ready("huge"),
      await pods.ready("burstable"),
      await pods.ready("besteffort"),
    ];
    for (const pod of [huge, burstable, besteffort]) {
      const [path] = cgroupsOf(cluster, firstProcess(cluster, pod));
      assert.equal(path, `${cgroupOf(pod)}/${containerId(pod)}`);
      assert.equal(limit(pod, "pids.max", 1), "200");
      assert.equal(limit(pod, "memory.oom.group"), onDocker() ? "0" : "1");
    }
    for (const levelsUp of [0, 1]) {
      assert.equal(limit(burstable, "memory.max", levelsUp), String(64 * Mi));
      assert.equal(limit(burstable, "cpu.max", levelsUp), "40000 100000");
      assert.equal(limit(burstable, "cpu.weight", levelsUp), String(weightOf(204)));
      assert.equal(limit(besteffort, "cpu.weight", levelsUp), "1");
      assert.equal(limit(besteffort, "memory.max", levelsUp), "max");
    }
    assert.equal(read("kubepods/burstable", "cpu.weight"), String(weightOf(204)));
    assert.equal(read("kubepods/besteffort", "cpu.weight"), "1");
    assert.equal(limit(huge, "cpu.weight", 1), String(weightOf(102)));
    assert.equal(limit(huge, "hugetlb.2MB.max", 1), String(4 * Mi));
    assert.equal(limit(burstable, "hugetlb.2MB.max", 1), "0", "who asks for no huge pages gets none");
  });

  test("limits swap, and with MemoryQoS protects memory, per pod and QoS class", async () => {
    const said = await there("cat /proc/meminfo");
    const bytes = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(said)?.[1]) * 1024;
    const [huge, burstable, besteffort] = [
      await pods.ready("huge"),
      await pods.ready("burstable"),
      await pods.ready("besteffort"),
    ];
    const share = Math.trunc(((32 * Mi) / bytes("MemTotal")) * bytes("SwapTotal"));
    // Docker limits swap only beside memory: there the pod has the limit, and what is kept as well.
    const own = onDocker() ? 1 : 0;
    assert.equal(limit(burstable, "memory.swap.max", own), inPages(share));
    for (const pod of [huge, besteffort]) assert.equal(limit(pod, "memory.swap.max", own), "0");
    if (!onDocker()) assert.equal(limit(burstable, "memory.high"), inPages((32 + 32 * 0.9) * Mi));
    for (const levelsUp of [own, 1]) {
      assert.equal(limit(burstable, "memory.low", levelsUp), String(32 * Mi));
      assert.equal(limit(huge, "memory.min", levelsUp), String(64 * Mi));
    }
    assert.equal(read("kubepods/burstable", "memory.low"), String(32 * Mi));
    assert.equal(read("kubepods", "memory.min"), String(96 * Mi));
  });

  test("adds a runtime class's overhead to the pod, not to its container", async () => {
    const spec = sleeping(alike({ cpu: "100m", memory: "32Mi" }));
    await pods.create("padded", { runtimeClassName: "padded", ...spec });
    const pod = await pods.ready("padded");
    const limits = (levelsUp: number) =>
      ["cpu.max", "memory.max", "cpu.weight"].map((file) => limit(pod, file, levelsUp));
    assert.deepEqual(limits(0), ["10000 100000", String(32 * Mi), String(weightOf(102))]);
    assert.deepEqual(limits(1), ["15000 100000", String(48 * Mi), String(weightOf(153))]);
  });

  test("resizes the cgroups of a container, its pod and its QoS class in place", async () => {
    const before = await pods.ready("burstable");
    const resize = async (name: string, resources: Resources): Promise<Pod> => {
      const spec = { containers: [{ name: "main", resources }] };
      return pods.resized(await pods.api.patch<Pod>(`/api/v1/namespaces/default/pods/${name}/resize`, { spec }));
    };
    // A container that may use swap requests as much memory as before: another share of it is not given in place.
    const limits = { cpu: "600m", memory: "96Mi" };
    const pod = await resize("burstable", { requests: { cpu: "300m", memory: "32Mi" }, limits });
    assert.equal(containerId(pod), containerId(before));
    for (const levelsUp of [0, 1]) {
      assert.equal(limit(pod, "memory.max", levelsUp), String(96 * Mi));
      assert.equal(limit(pod, "cpu.max", levelsUp), "60000 100000");
      assert.equal(limit(pod, "cpu.weight", levelsUp), String(weightOf(307)));
    }
    assert.equal(read("kubepods/burstable", "cpu.weight"), String(weightOf(307)));
    const guaranteed = await resize("padded", alike({ cpu: "100m", memory: "48Mi" }));
    assert.deepEqual(
      [0, 1].map((levelsUp) => limit(guaranteed, "memory.max", levelsUp)),
      [48 * Mi, (48 + 16) * Mi].map(String),
    );
    assert.equal(limit(guaranteed, "memory.min", 1), String((48 + 16) * Mi));
    assert.equal(read("kubepods", "memory.min"), String((64 + 32 + 48 + 16) * Mi));
  });

  test("OOM-kills the whole container and no other; with Docker, only the process", async () => {
    const { uid } = (await outgrowMemory(cluster, pods, "hungry")).metadata;
    await pods.remove("hungry", 1);
    await cluster.waitFor("its cgroup to be gone", async () => !(await inForce()).join().includes(uid));
    for (const name of ["huge", "burstable", "besteffort", "padded"])
      assert.equal(statusOf(await pods.ready(name))?.restartCount, 0);
  });

  test("keeps limits while graftlet is down and systemd reloads; adopts pods of another cgroup driver, with one warning", async () => {
    const names = ["burstable", "besteffort", "padded"];
    const before = await Promise.all(names.map(pods.ready));
    const { metadata } = await pods.ready("huge");
    const limits = await inForce();
    await agent?.kill("SIGKILL");
    await pods.remove("huge", 1);
    const gone = pods.gone("huge");
    await there(
      "systemctl daemon-reload; systemd-run --quiet --wait --property=CPUWeight=50 --property=MemoryMax=1G true",
    );
    assert.deepEqual(await inForce(), limits);
    const logged = agent?.log().length;
    await start({ config: { cgroupDriver: "systemd" } });
    await gone;
    await cluster.waitFor(
      "the cgroup of the pod that ended to be gone",
      async () => !(await inForce()).join().includes(metadata.uid),
    );
    const keptForAll = /kubepods\/memory\.min:/;
    const others = (lines: readonly string[]) =>
      lines.filter((line) => !line.includes(metadata.uid) && !keptForAll.test(line));
    assert.deepEqual(others(await inForce()), others(limits));
    assert.equal(read("kubepods", "memory.min"), String((32 + 48 + 16) * Mi), "no more for the pod that ended");
    for (const pod of before) {
      const again = await pods.ready(pod.metadata.name);
      assert.deepEqual([containerId(again), statusOf(again)?.restartCount], [containerId(pod), 0]);
    }
    const said = agent
      ?.log()
      .slice(logged)
      .match(
        /"cgroupDriver":"cgroupfs","configured":"systemd","msg":"using the runtime's cgroup driver instead of the configured one"/g,
      );
    assert.equal(said?.length, 1);
    assert.equal(existsSync(fileOf("kubepods.slice")), false);
  });

  test("recreates removed QoS and pod cgroups with their limits at the next interval", async () => {
    const [burstable, besteffort] = [cgroupOf(await pods.ready("burstable")), cgroupOf(await pods.ready("besteffort"))];
    const removed = [burstable, "/kubepods/besteffort"].map((cgroup) => `/sys/fs/cgroup${cgroup}`).join(" ");
    await there(`find ${removed} -name cgroup.procs -exec cat {} + | while read -r pid; do echo "$pid" >/sys/fs/cgroup/cgroup.procs; done
      find ${removed} -depth -type d -exec rmdir {} +`);
    assert.deepEqual(
      [burstable, besteffort].map((cgroup) => existsSync(fileOf(cgroup))),
      [false, false],
    );
    const limitsOf = (cgroup: string) =>
      existsSync(fileOf(cgroup)) &&
      ["memory.max", "cpu.max", "cpu.weight", "pids.max", "hugetlb.2MB.max"].map((file) => read(cgroup, file)).join();
    const expected = [`${96 * Mi},60000 100000,${weightOf(307)},200,0`, "max,max 100000,1,200,0"].join();
    await cluster.waitFor("the pods' limits", () => [burstable, besteffort].map(limitsOf).join() === expected, {
      timeoutMs: roundMs,
      explain: () => [burstable, besteffort].map(limitsOf).join("\n"),
    });
    assert.equal(read("kubepods/besteffort", "cpu.weight"), "1");
    for (const name of ["burstable", "besteffort"]) assert.equal(statusOf(await pods.ready(name))?.restartCount, 0);
  });

  test("graftlet remove deletes all of its cgroups", async () => {
    assert.ok(agent);
    const { program, flags } = commandLine(agent);
    assert.equal(await agent.stop(), true);
    const argv = [...program, "remove", ...flags, "--yes"];
    const { code, stdout, stderr } = await cluster.runAtAgent(argv, { timeoutMs: patience(60_000) });
    assert.equal(code, 0, stdout + stderr);
    const left = await there(
      "find /sys/fs/cgroup -name '*kubepods*'; cat /proc/[0-9]*/cgroup 2>/dev/null | grep kubepods || :",
    );
    assert.equal(left, "", "neither a cgroup nor a process in one");
    const failed = await there("systemctl list-units --failed --plain --no-legend");
    assert.doesNotMatch(failed, /kubepods/);
  });
});
