import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CoreEvent, Node } from "../../src/objects.ts";
import { cgroupPath } from "../../src/pod/cgroup-path.ts";
import { weightOf } from "../../src/host/cgroups.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { createCgroup } from "../harness/cgroups.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { cgroupFolders, isCgroupV2 } from "../harness/pod-machine.ts";
import { type Pods, type SpecDraft, openPods, shell, statusOf } from "../harness/pods.ts";
import { isGuest } from "../matrix.ts";
import { hasSystemd, isRemote } from "../harness/runtime-daemon.ts";
import { patience, waitFor } from "../harness/wait.ts";

const Mi = 2 ** 20;
/** A round of the agent's, and something to spare, milliseconds. */
const roundMs = 90_000;

describe("node allocatable and QoS weights", { timeout: patience(900_000) }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent | undefined;
  /** The target's memory, bytes, and its processors. */
  let memory: number;
  let cpus: number;

  const restart = async (config: object) => {
    if (agent) assert.equal(await agent.stop(), true);
    agent = await startGraftlet(cluster, { config: { ...config } });
  };
  /** Path of a cgroup as its driver has it. */
  const pathOf = (path: string) => {
    return cgroupPath(path.split("/"), hasSystemd(cluster.provider) ? "systemd" : "cgroupfs");
  };
  /** The same as the agent is told it: a machine with a systemd has it below its root. */
  const given = (name: string) =>
    hasSystemd(cluster.provider) ? pathOf(name) : join(cluster.layout.cgroup, pathOf(name));
  const directories = (path: string) => cgroupFolders(cluster, pathOf(path));
  const file = (path: string, names: readonly string[]) =>
    directories(path)
      .flatMap((directory) => names.map((name) => join(directory, name)))
      .find(existsSync) ?? assert.fail(`${path} has no ${names.join(", ")}`);
  const read = (path: string, ...names: readonly string[]) => readFileSync(file(path, names), "utf8").trim();
  /** CPU shares, or the weight that stands for them. */
  const shares = (path: string) => Number(read(path, "cpu.shares", "cpu.weight"));
  const expected = (cpuShares: number) => (isCgroupV2(cluster) ? weightOf(cpuShares) : cpuShares);
  const memoryLimit = (path: string) => {
    const limit = read(path, "memory.limit_in_bytes", "memory.max");
    return limit === "max" ? Infinity : Number(limit);
  };
  const until = (what: string, holds: () => boolean, timeoutMs = 20_000) =>
    waitFor(what, holds, { timeoutMs, everyMs: 100 });
  const nodeEvents = async (): Promise<readonly string[]> => {
    const of = `involvedObject.kind=Node,involvedObject.name=${cluster.nodeName}`;
    const { items } = await pods.api.get<{ items: CoreEvent[] }>(`/api/v1/events?fieldSelector=${of}`);
    return items.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
  };
  const untilTold = (line: string, timeoutMs = 20_000) =>
    cluster.waitFor(
      `the node's event "${line}"`,
      async () => (await nodeEvents()).some((told) => told.includes(line)),
      {
        timeoutMs,
        explain: async () => (await nodeEvents()).join("\n"),
      },
    );
  /** A pod that requests CPU. */
  const asking = (cpu: string, script = "exec sleep 3600"): SpecDraft => ({
    containers: [shell(script, { resources: { requests: { cpu } } })],
  });

  before(async () => {
    cluster = await startCluster({ name: "node-allocatable" });
    pods = await openPods(cluster);
    const { stdout } = await cluster.runInside(["cat", "/proc/meminfo", "/proc/cpuinfo"]);
    memory = Number(/^MemTotal:\s+(\d+)/m.exec(stdout)?.[1]) * 1024;
    cpus = stdout.match(/^processor\s*:/gm)?.length ?? 0;
    if (!isGuest(cluster.provider))
      for (const name of ["kube", "system"])
        createCgroup({ ...cluster.layout, cgroup: join(cluster.layout.cgroup, pathOf(name)) });
    if (hasSystemd(cluster.provider)) await cluster.runInside(["systemctl", "start", "kube.slice", "system.slice"]);
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("limits all pods together to allocatable and reserved cgroups to their reservations, and reports both", async () => {
    await restart({
      kubeReserved: { cpu: "200m", memory: "256Mi", pid: "1000" },
      systemReserved: { cpu: "300m", memory: "128Mi" },
      enforceNodeAllocatable: ["pods", "kube-reserved", "system-reserved-compressible"],
      kubeReservedCgroup: given("kube"),
      systemReservedCgroup: given("system"),
      podPidsLimit: 321,
    });
    const page = 4096;
    await until("the pods' limit", () => memoryLimit("kubepods") < memory);
    assert.equal(memoryLimit("kubepods"), Math.floor((memory - 384 * Mi) / page) * page);
    assert.equal(shares("kubepods"), expected(Math.trunc(((cpus * 1000 - 500) * 1024) / 1000)));
    const most = ["pid_max", "threads-max"].map((name) => `/proc/sys/kernel/${name}`);
    const { stdout } = await cluster.runInside(["cat", ...most]);
    assert.equal(Number(read("kubepods", "pids.max")), Math.min(...stdout.trim().split("\n").map(Number)) - 1000);
    assert.deepEqual([memoryLimit("kube"), shares("kube")], [256 * Mi, expected(204)]);
    assert.equal(read("kube", "pids.max"), "1000");
    assert.equal(shares("system"), expected(307));
    assert.ok(memoryLimit("system") > memory, "of the system's share only the CPU is limited");
    await untilTold("Normal NodeAllocatableEnforced Updated Node Allocatable limit across pods");
    for (const name of ["kube", "system"])
      await untilTold(`Normal NodeAllocatableEnforced Updated limits on ${name} reserved cgroup ${given(name)}`);
  });

  test("sets the CPU weight of Burstable pods by their requests at each start and end; BestEffort pods get the minimum", async () => {
    await pods.create("first", asking("200m"));
    await pods.create("second", asking("300m"));
    const [first] = await Promise.all(["first", "second"].map(pods.ready));
    assert.equal(read(`kubepods/burstable/pod${first?.metadata.uid}`, "pids.max"), "321");
    assert.equal(shares("kubepods/burstable"), expected(512));
    assert.equal(shares("kubepods/besteffort"), expected(2));
    await pods.create("short", { ...asking("500m", "exec sleep 1"), restartPolicy: "Never" });
    await pods.until("short", "to have ended", ({ status }) => status?.phase === "Succeeded");
    await until("what the ended pod requested to count no more", () => shares("kubepods/burstable") === expected(512));
    await pods.remove("second", 0);
    await until(
      "what the removed pod requested to count no more",
      () => shares("kubepods/burstable") === expected(204),
    );
  });

  test("keeps limits in force when graftlet is killed", async () => {
    const before = [memoryLimit("kubepods"), shares("kubepods/burstable")];
    await agent?.kill("SIGKILL");
    assert.deepEqual([memoryLimit("kubepods"), shares("kubepods/burstable")], before);
  });

  /** A pod that holds memory: pages of a volume, which no kill gives back, where the kernel refuses a limit below them; where it
   *  makes room by killing, a process's own. */
  const greedy = (): SpecDraft => {
    const held =
      "mkfifo /tmp/unread; (exec sleep 3600 </tmp/unread) & exec dd if=/dev/zero of=/tmp/unread bs=150M count=1";
    if (isCgroupV2(cluster)) return { restartPolicy: "Never", containers: [shell(held)] };
    const filled = "dd if=/dev/zero of=/memory/much bs=1M count=150; exec sleep 3600";
    return {
      volumes: [{ name: "memory", emptyDir: { medium: "Memory" } }],
      containers: [shell(filled, { volumeMounts: [{ name: "memory", mountPath: "/memory" }] })],
    };
  };

  test("applies a limit below current usage later or by an OOM kill, and reverts changes made by others", async () => {
    await restart({ enforceNodeAllocatable: ["pods"] });
    await pods.create("greedy", greedy());
    const used = () => Number(read("kubepods", "memory.usage_in_bytes", "memory.current"));
    await until("the pod to hold its memory", () => used() >= 150 * Mi, 60_000);
    await restart({ enforceNodeAllocatable: ["pods"], systemReserved: { memory: `${memory - 120 * Mi}` } });
    const tiers = ["kubepods/burstable", "kubepods/besteffort"];
    if (isCgroupV2(cluster)) {
      const killed = await pods.until(
        "greedy",
        "to be killed",
        (pod) => statusOf(pod)?.state?.terminated !== undefined,
      );
      assert.equal(statusOf(killed)?.state?.terminated?.exitCode, 137, JSON.stringify(killed.status));
      assert.match(read("kubepods", "memory.events"), /^oom_kill [1-9]/m);
    } else await untilTold(`Warning FailedNodeAllocatableEnforcement Failed to update Node Allocatable Limits [`);
    for (const tier of tiers) writeFileSync(file(tier, ["cpu.shares", "cpu.weight"]), "77");
    await pods.remove("greedy", 0);
    await until("the pods' limit", () => memoryLimit("kubepods") <= 120 * Mi, roundMs);
    // Where the limit was in force already, nothing says that a round has passed.
    const mended = isCgroupV2(cluster) ? roundMs : undefined;
    await until("the tiers' shares", () => [204, 2].map(expected).join() === tiers.map(shares).join(), mended);
  });

  test("refuses to start, with one sentence, if a reserved cgroup is missing or too much is reserved", async () => {
    if (agent) assert.equal(await agent.stop(), true);
    const refused = async (config: object, sentence: RegExp) => {
      await using refusing = await startGraftlet(cluster, { config: { ...config }, untilReady: false });
      const before = refusing.log().length;
      if (isRemote(cluster.provider)) {
        await untilNotReady(sentence);
        return;
      }
      const { code } = await refusing.ended;
      const lines = refusing.log().slice(before).split("\n");
      const said = lines.filter((line) => line !== "" && !line.startsWith("{"));
      assert.match(said.join("\n"), sentence);
      assert.deepEqual([said.length, code], [1, 1], said.join("\n"));
    };
    // Of another machine it is the node's trouble, and no reason to end.
    const untilNotReady = (sentence: RegExp) =>
      cluster.waitFor("the node to say why it is not Ready", async () => {
        const node = await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
        const ready = node.status?.conditions?.find(({ type }) => type === "Ready");
        return ready?.status === "False" && ready.reason === "NodeAllocatable" && sentence.test(ready.message ?? "");
      });
    await refused(
      { enforceNodeAllocatable: ["pods", "system-reserved"], systemReservedCgroup: "/missing" },
      isCgroupV2(cluster)
        ? /Limits on "\/missing": could not read controllers for cgroup \["missing"\]: open .*: no such file or directory/
        : /Failed to enforce System Reserved Cgroup Limits on "\/missing": cgroup \["missing"\] has some missing paths: \//,
    );
    await refused(
      { systemReserved: { cpu: "1000" }, kubeReserved: { memory: "900Ti" } },
      /invalid Node Allocatable configuration\. Resource "cpu" has a reservation of 1000 but capacity of \d+\. Expected capacity >= reservation\. Resource "memory" has/,
    );
  });
});
