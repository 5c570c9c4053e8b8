import assert from "node:assert/strict";
import { once } from "node:events";
import { after, before, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Node, Pod } from "../../src/objects.ts";
import { quantityValue } from "../../src/pod/quantity.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { agentAddresses } from "../harness/agent-machine.ts";
import { capabilitiesIn, hasResourceCapability } from "../harness/capabilities.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type ContainerDraft, type Pods, openPods, shell, statusOf, assertOutOfMemory } from "../harness/pods.ts";
import { isRemote, providerUnderTest } from "../harness/runtime-daemon.ts";
import { loginKeyFile } from "../harness/sshd.ts";
import { type TargetCgroups, targetCgroups } from "../harness/target-cgroups.ts";
import { patience } from "../harness/wait.ts";
import { isGuest, whole } from "../matrix.ts";

const Mi = 2 ** 20;
/** Time over which shares are compared, milliseconds. */
const measuredMs = whole || isGuest(providerUnderTest()) ? 30_000 : 6_000;
/** A session echoes within this time, milliseconds: within a second, where a second is one. */
const echoMs = patience(1000);
/** All that burns, and the session beside it, wants this CPU. */
const onOneCpu = ["taskset", "-c", "0"];

/** A session on the target, beside its pods. */
interface Session extends AsyncDisposable {
  /** Has it say something every tenth of a second while the work lasts. @returns the longest wait for an echo, milliseconds. */
  during(work: () => Promise<void>): Promise<number>;
}

/** Opens a session with the target: a login over SSH where the agent has one, else a process outside the pods' cgroup. */
async function openSession({ provider, layout, ...cluster }: Cluster): Promise<Session> {
  const login = [
    "ssh",
    "-F",
    "none",
    "-p",
    String(agentAddresses.sshPort),
    "-i",
    loginKeyFile(layout),
    "-o",
    "LogLevel=ERROR",
  ];
  const trusting = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"];
  const echo = [...onOneCpu, "cat"];
  const child = isRemote(provider)
    ? cluster.spawnAtAgent([...login, ...trusting, `root@${agentAddresses.target}`, ...echo], { stdio: "pipe" })
    : cluster.spawnInside(echo, { stdio: "pipe" });
  const { stdin, stdout } = child;
  assert.ok(stdin && stdout);
  const echoed = async (): Promise<number> => {
    const began = performance.now();
    const heard = once(stdout, "data", { signal: AbortSignal.timeout(30_000) });
    stdin.write("still there?\n");
    await heard;
    return performance.now() - began;
  };
  await echoed();
  return {
    async during(work) {
      const done = new AbortController();
      const working = work().finally(() => done.abort());
      let longest = 0;
      do {
        longest = Math.max(longest, await echoed());
        await sleep(100, undefined, { signal: done.signal }).catch(() => undefined);
      } while (!done.signal.aborted);
      await working;
      return longest;
    },
    async [Symbol.asyncDispose]() {
      child.kill();
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
    },
  };
}

/** A container that says its OOM score, and then holds so many bytes in its first process, which has no other work. */
function holding(bytes: number, resources?: ContainerDraft["resources"]): ContainerDraft {
  const script = `cat /proc/self/oom_score_adj
    mkfifo /tmp/unread; (exec sleep 3600 </tmp/unread) & exec dd if=/dev/zero of=/tmp/unread bs=${bytes} count=1`;
  return shell(script, { resources });
}

describe("pods of each QoS class next to an interactive session on the machine", { timeout: patience(600_000) }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let cgroups: TargetCgroups;
  let session: Session;
  let agent: Agent | undefined;

  const tiers: Readonly<Record<string, string>> = {
    Guaranteed: "",
    Burstable: "burstable/",
    BestEffort: "besteffort/",
  };
  const cgroupOf = ({ metadata, status }: Pod) => `kubepods/${tiers[status?.qosClass ?? ""]}pod${metadata.uid}`;
  const node = async () => await pods.api.get<Node>(`/api/v1/nodes/${cluster.nodeName}`);
  const capacity = async () => quantityValue((await node()).status?.capacity?.["memory"] ?? "0");

  before(async () => {
    cluster = await startCluster({ name: "shares" });
    pods = await openPods(cluster);
    cgroups = targetCgroups(cluster);
    agent = await startGraftlet(cluster);
    session = await openSession(cluster);
  });
  after(async () => {
    await session?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  test("pods share a CPU in proportion to their requests, and the session stays responsive", async (t) => {
    const burning = (resources?: ContainerDraft["resources"]): ContainerDraft => ({
      command: [...onOneCpu, "sh", "-c", "while :; do :; done"],
      resources,
    });
    // The Guaranteed pod's limit is above what is left to it beside the others.
    const millis = { guaranteed: 500, much: 400, little: 200 };
    const limits = { cpu: `${millis.guaranteed}m`, memory: "32Mi" };
    await pods.create("guaranteed", { containers: [burning({ limits, requests: limits })] });
    for (const name of ["much", "little"] as const)
      await pods.create(name, { containers: [burning({ requests: { cpu: `${millis[name]}m` } })] });
    await pods.create("least", { containers: [burning()] });
    const names = [...Object.keys(millis), "least"];
    const groups = (await Promise.all(names.map(pods.ready))).map(cgroupOf);
    let used: number[] = [];
    const longestMs = await session.during(async () => {
      const before = await cgroups.cpuTime(groups);
      await sleep(measuredMs);
      used = (await cgroups.cpuTime(groups)).map((time, at) => time - (before[at] ?? 0));
    });
    const total = used.reduce((sum, each) => sum + each, 0);
    const parts = used.map((each) => each / total);
    const said = names.map((name, at) => `${name} ${((parts[at] ?? 0) * 100).toFixed(1)} %`).join(", ");
    const requested = Object.values(millis).reduce((sum, each) => sum + each, 0);
    const [, , , least = 1] = parts;
    for (const [at, milli] of Object.values(millis).entries()) {
      const share = (parts[at] ?? 0) / (1 - least) / (milli / requested);
      assert.ok(Math.abs(share - 1) < 0.1, `${names[at]} got ${share.toFixed(3)} of its share: ${said}`);
    }
    assert.ok(least < 0.05, said);
    t.diagnostic(`${said}; the longest wait for an echo ${Math.round(longestMs)} ms`);
    assert.ok(longestMs < echoMs, `an echo took ${longestMs} ms`);
    await Promise.all(names.map((name) => pods.remove(name, 0)));
  });

  test("a pod over its memory request is killed when pods exceed their common limit", async () => {
    assert.equal(await agent?.stop(), true);
    const all = await capacity();
    // Else a guest's node, whose pods take their memory slowly, evicts one before the kernel kills it.
    const evictionHard = { "memory.available": "0%" };
    // The kernel counts a whole limit as 1000: BestEffort pods are 1000 ahead, Burstable ones nearly as much.
    const config = { systemReserved: { memory: String(all - 360 * Mi) }, evictionHard };
    agent = await startGraftlet(cluster, { config });
    const holds = async (name: string, bytes: number) => {
      const pod = await pods.until(name, "to run", ({ status }) => status?.phase === "Running");
      const usage = async () =>
        Number((await cgroups.read([cgroupOf(pod)], "memory.usage_in_bytes", "memory.current"))[0]);
      await cluster.waitFor(`${name} to hold its memory`, async () => (await usage()) >= bytes);
    };
    /** Kills of processes of pods so far, which only version 2 of cgroups counts for all of them together. */
    const kills = async () =>
      Number(/^oom_kill (\d+)/m.exec((await cgroups.read(["kubepods"], "memory.events", "memory.stat"))[0] ?? "")?.[1]);
    const killed = async (name: string, before: number) => {
      const pod = await pods.until(name, "to be killed", (one) => statusOf(one)?.state?.terminated !== undefined);
      assertOutOfMemory(cluster, pod);
      if (isGuest(cluster.provider)) assert.ok((await kills()) > before, `the kernel has killed ${name}`);
    };
    const once = { restartPolicy: "Never" };
    const requests = { memory: "40Mi" };
    const limits = { cpu: "100m", memory: "180Mi" };
    const longestMs = await session.during(async () => {
      await pods.create("modest", { ...once, containers: [holding(40 * Mi, { requests })] });
      await pods.create("idle", { ...once, containers: [holding(190 * Mi)] });
      await Promise.all([holds("modest", 40 * Mi), holds("idle", 190 * Mi)]);
      await pods.create("steady", { ...once, containers: [holding(140 * Mi, { requests: limits, limits })] });
      await killed("idle", 0);
      await holds("steady", 140 * Mi);
      const before = await kills();
      const small = { requests: { memory: "16Mi" } };
      await pods.create("greedy", { ...once, containers: [{ command: ["tail", "/dev/zero"], resources: small }] });
      await killed("greedy", before);
    });
    for (const name of ["modest", "steady"]) {
      const pod = pods.history(name).at(-1);
      assert.ok(pod && statusOf(pod)?.state?.running && statusOf(pod)?.restartCount === 0, name);
    }
    assert.ok(longestMs < echoMs, `an echo took ${longestMs} ms`);
    const { stdout: own } = await cluster.runInside(["cat", "/proc/self/oom_score_adj"]);
    const { stdout: status } = await cluster.runInside(["cat", "/proc/self/status"]);
    const mayLower = hasResourceCapability(capabilitiesIn(status));
    const scored = (score: number) => `${mayLower ? score : Math.max(score, Number(own))}\n`;
    const scores = { idle: 1000, modest: 1000 - Math.floor((1000 * 40 * Mi) / all), steady: -997 };
    for (const [name, score] of Object.entries(scores)) await pods.logged(name, scored(score));
  });
});
