import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { CoreEvent } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { readiness, untilReadiness } from "../harness/docker-lab.ts";
import { type Pods, type SpecDraft, condition, openPods, shell, statusOf } from "../harness/pods.ts";
import { isAlive } from "../harness/processes.ts";
import { boot } from "../machines/boot.ts";
import { machineOf } from "../machines/enter.ts";
import { powerOff } from "../machines/machine.ts";
import type { Pod } from "../../src/objects.ts";

const [allSeconds, criticalSeconds] = [12, 4];
const config = { shutdownGracePeriod: `${allSeconds}s`, shutdownGracePeriodCriticalPods: `${criticalSeconds}s` };
const inTime = 7;
const message = "Pod was terminated in response to imminent node shutdown.";

/** A container that takes its time when it is asked to end. Its exit code says that it had it; with 0 a pod has succeeded, as with a
 *  kubelet, whoever ended it. */
const takes = (seconds: number) => shell(`trap 'sleep ${seconds}; exit ${inTime}' TERM; while :; do sleep 0.1; done`);
const lasting = (seconds: number, more: SpecDraft = {}): SpecDraft => ({
  terminationGracePeriodSeconds: 60,
  containers: [takes(seconds)],
  ...more,
});
const critical = { priorityClassName: "system-cluster-critical" };

const beginShutdown = `
rm -f /run/called-off
cd /run/systemd/system
printf '[Unit]\\nDefaultDependencies=no\\nRequires=waits.service\\nAfter=waits.service\\n' > poweroff.target
printf '[Unit]\\nDefaultDependencies=no\\n[Service]\\nType=oneshot\\nExecStart=/bin/sh -c "until test -e /run/called-off; do sleep 0.1; done"\\n' > waits.service
systemctl daemon-reload
busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager PowerOff b false`;

describe("graceful node shutdown", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  let agent: Agent;
  before(async () => {
    cluster = await startCluster({ name: "shutdown", provider: "ssh-systemd" });
    agent = await startGraftlet(cluster, { config });
    pods = await openPods(cluster);
  });
  after(async () => {
    await pods?.[Symbol.asyncDispose]();
    await agent?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  /** Not by way of the scheduler: it minds the taint of a node that is not ready. */
  const create = (name: string, spec: SpecDraft) => pods.create(name, { nodeName: cluster.nodeName, ...spec });
  const onMachine = async (...argv: string[]): Promise<string> => {
    const { code, stdout, stderr } = await cluster.runInside(argv);
    assert.equal(code, 0, stderr);
    return stdout;
  };
  /** Has logind itself announce a shutdown, or call it off: its target is one that waits for a file, and then has not shut down. */
  const announce = (active: boolean) => onMachine("sh", "-ec", active ? beginShutdown : "touch /run/called-off");
  const inhibitors = () => onMachine("systemd-inhibit", "--list", "--no-legend");
  const untilDelayed = (is: boolean) =>
    cluster.waitFor(
      is ? "the node to delay a shutdown" : "the node to let the machine go",
      async () =>
        /kubelet .* shutdown Kubelet needs time to handle node shutdown +delay/.test(await inhibitors()) === is,
      { timeoutMs: 30_000, explain: async () => `${await inhibitors()}\n${agent.log().slice(-2000)}` },
    );
  const delaySeconds = async () =>
    Number(
      (
        await onMachine(
          ..."busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec".split(
            " ",
          ),
        )
      ).split(" ")[1],
    ) / 1e6;
  const nodeEvents = async (): Promise<readonly string[]> => {
    const of = `involvedObject.kind=Node,involvedObject.name=${cluster.nodeName}`;
    const { items } = await pods.api.get<{ items: CoreEvent[] }>(`/api/v1/events?fieldSelector=${of}`);
    return items.map(({ type, reason, message }) => `${type} ${reason} ${message}`);
  };
  const ended = (name: string, timeoutMs?: number) =>
    pods.until(
      name,
      "to have failed",
      (pod) => pod.status?.phase === "Failed" && statusOf(pod)?.state?.terminated !== undefined,
      timeoutMs,
    );
  const endOf = (pod: Pod) => Date.parse(statusOf(pod)?.state?.terminated?.finishedAt ?? "");
  const goingDown = /^False KubeletNotReady .*node is shutting down/;

  test("before a shutdown, logind's delay is as configured and the node holds an inhibitor lock", async () => {
    await untilDelayed(true);
    assert.equal(await delaySeconds(), allSeconds);
    const file = await onMachine("cat", "/etc/systemd/logind.conf.d/99-kubelet.conf");
    assert.equal(file, `# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=${allSeconds}\n`);
  });

  test("ignores a shutdown announced by another user of the machine", async () => {
    const emit = "busctl emit /org/freedesktop/login1 org.freedesktop.login1.Manager PrepareForShutdown b true";
    await onMachine("setpriv", "--reuid=nobody", "--clear-groups", ...emit.split(" "));
    await create("undisturbed", lasting(0));
    const { status } = await pods.ready("undisturbed");
    assert.equal(status?.phase, "Running");
    assert.match(await readiness(cluster), /^True /);
    await pods.remove("undisturbed", 0);
  });

  test("terminates pods, critical ones last, and admits none; restores the node if the shutdown is cancelled", async () => {
    await create("usual", lasting(3));
    await create("critical", lasting(1, critical));
    await create("endless", {
      terminationGracePeriodSeconds: 60,
      containers: [shell("trap '' TERM; while :; do sleep 0.1; done")],
    });
    await Promise.all(["usual", "critical", "endless"].map((name) => pods.ready(name)));
    const began = Date.now();
    await announce(true);
    await untilReadiness(cluster, goingDown, 10_000);
    console.log(`announced to Node not Ready: ${Date.now() - began} ms`);
    await create("late", {});
    const refused = await pods.until("late", "to be refused", (pod) => pod.status?.phase === "Failed");
    assert.equal(refused.status?.reason, "NodeShutdown");
    assert.match(refused.status?.message ?? "", /Pod was rejected as the node is shutting down\.$/);
    const [usual, endless, last] = [await ended("usual"), await ended("endless"), await ended("critical")];
    for (const pod of [usual, last, endless]) {
      assert.equal(pod.status?.reason, "Terminated");
      assert.equal(pod.status?.message, message);
      const { status, reason, message: why } = condition(pod, "DisruptionTarget") ?? assert.fail(pod.metadata.name);
      assert.deepEqual([status, reason, why], ["True", "TerminationByKubelet", message]);
    }
    assert.equal(statusOf(endless)?.state?.terminated?.exitCode, 137, "a group's time is the most that a pod has");
    assert.ok(endOf(last) >= endOf(endless) && endOf(endless) > endOf(usual), "the critical pod ends after the others");
    await untilDelayed(false);
    const took = (Date.now() - began) / 1000;
    console.log(`announced to let go: ${took} s`);
    assert.ok(took >= allSeconds - criticalSeconds && took < allSeconds + 8, `${took} s`);
    const record = readFileSync(join(cluster.root, agent.rootDir, "graceful_node_shutdown_state"), "utf8");
    const { startTime, endTime } = JSON.parse(record) as Record<string, string>;
    assert.ok(Date.parse(startTime ?? "") < Date.parse(endTime ?? ""), record);
    const metrics = await cluster.mustKubectl(["get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`]);
    const seconds = Math.floor(Date.parse(startTime ?? "") / 1000);
    assert.match(metrics, new RegExp(`^kubelet_graceful_shutdown_start_time_seconds ${seconds}$`, "m"));

    await announce(false);
    await untilReadiness(cluster, /^True /, 10_000);
    await untilDelayed(true);
    await create("after", {});
    await pods.ready("after");
    await cluster.waitFor("both events", async () => {
      const told = await nodeEvents();
      return ["event", "cancellation"].every((what) =>
        told.includes(`Normal Shutdown Shutdown manager detected shutdown ${what}`),
      );
    });
  });

  test("observes the next shutdown after the bus has restarted", async () => {
    await onMachine("systemctl", "restart", "dbus");
    await cluster.waitFor(
      "the node to listen again",
      () => /Restarting watch for node shutdown events/.test(agent.log()),
      30_000,
    );
    await untilDelayed(true);
    await announce(true);
    await untilReadiness(cluster, goingDown, 10_000);
    await ended("after");
    await announce(false);
    await untilReadiness(cluster, /^True /, 10_000);
  });

  test("an agent killed during a shutdown delays nothing; restarted, it manages a machine that stays up", async () => {
    await create("slow", lasting(6));
    await pods.ready("slow");
    await untilDelayed(true);
    await announce(true);
    await untilReadiness(cluster, goingDown, 10_000);
    await agent.kill("SIGKILL");
    await untilDelayed(false);
    await announce(false);
    agent = await startGraftlet(cluster, { config });
    await untilDelayed(true);
    await untilReadiness(cluster, /^True /, 10_000);
  });

  test("a power-off waits only for the pods; until the Node is back, it reports why it is down", async () => {
    await create("to-the-end", lasting(4));
    await pods.ready("to-the-end");
    await untilDelayed(true);
    const machine = machineOf(cluster.layout) ?? assert.fail("no machine");
    const began = Date.now();
    await onMachine("rm", "/run/systemd/system/poweroff.target");
    await onMachine("systemctl", "daemon-reload");
    await onMachine("systemctl", "poweroff");
    await untilReadiness(cluster, goingDown, 10_000);
    const last = await ended("to-the-end");
    assert.equal(statusOf(last)?.state?.terminated?.exitCode, inTime, "it had the time that it took");
    await cluster.waitFor("the machine to be off", () => !isAlive(machine), { timeoutMs: 90_000 });
    const took = (Date.now() - began) / 1000;
    console.log(`powered off to off: ${took} s`);
    assert.ok(took >= 4, `${took} s`);
    // The link is lost by now, and the agent knows it.
    await cluster.waitFor(
      "the agent to miss the target",
      () => /link/i.test(agent.log().split("\n").slice(-30).join("\n")),
      30_000,
    );
    assert.match(await readiness(cluster), goingDown);
    await agent.kill("SIGKILL");
    agent = await startGraftlet(cluster, { config, untilReady: false });
    const since = Date.now();
    await cluster.waitFor("eight seconds", () => Date.now() > since + 8_000);
    assert.match(await readiness(cluster), goingDown);

    await powerOff(cluster.layout);
    await boot(cluster.layout);
    await cluster.startRuntime();
    await cluster.startSshd();
    await untilReadiness(cluster, /^True /, 60_000);
    await create("again", {});
    await pods.ready("again");
  });
});
