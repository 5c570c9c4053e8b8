import assert from "node:assert/strict";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";
import { stringify } from "yaml";
import { kubeletConfiguration, nodeReady } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { untilReadiness } from "../harness/docker-lab.ts";
import { type Pods, containerId, openPods, shell, statusOf } from "../harness/pods.ts";
import { prepared } from "../harness/prepared.ts";
import { isAlive, must } from "../harness/processes.ts";
import { machineOf } from "../machines/enter.ts";

const project = join(import.meta.dirname, "..", "..");

/** The unit as docs/service.md has it. */
function documentedUnit(): string {
  const [, unit] = /```ini\n(\[Unit\][^`]*)```/.exec(readFileSync(join(project, "docs/service.md"), "utf8")) ?? [];
  return unit ?? assert.fail("docs/service.md has no unit");
}

/** Shorter times than a user's. */
const hasty = "[Service]\nWatchdogSec=6s\nTimeoutAbortSec=2s\nRestartSec=1\n";

// The built program on a machine with a systemd, as its unit has it: the node is the machine itself, without SSH.
describe("graftlet as a systemd service", { timeout: 600_000 }, () => {
  let cluster: Cluster;
  let pods: Pods;
  before(async () => {
    cluster = await startCluster({ name: "service", provider: "ssh-systemd" });
    const { layout, nodeName } = cluster;
    const folder = join(layout.dir, "built");
    const built = prepared()?.graftlet ?? join(folder, "graftlet.mjs");
    if (!prepared())
      await must([process.execPath, join(project, "tools/build.ts"), join(project, "src/main.ts"), folder]);
    const put = (path: string, write: (file: string) => void) => {
      const file = join(cluster.root, path);
      mkdirSync(dirname(file), { recursive: true });
      write(file);
    };
    const config = {
      ...kubeletConfiguration(cluster),
      shutdownGracePeriod: "10s",
      shutdownGracePeriodCriticalPods: "2s",
    };
    const kubeconfig = await cluster.kubeconfigFor(nodeName);
    put("/usr/local/bin/node", (file) => copyFileSync(process.execPath, file));
    const libraries = (await must(["ldd", process.execPath])).matchAll(/=> (\/\S+)/g);
    for (const [, library = ""] of libraries)
      if (!existsSync(join(cluster.root, library))) put(library, (file) => copyFileSync(library, file));
    put("/usr/local/bin/graftlet", (file) => copyFileSync(built, file));
    put("/var/lib/kubelet/config.yaml", (file) => writeFileSync(file, stringify(config)));
    put("/etc/kubernetes/kubelet.conf", (file) => copyFileSync(kubeconfig, file));
    put("/etc/systemd/system/graftlet.service", (file) => writeFileSync(file, documentedUnit()));
    put("/etc/systemd/system/graftlet.service.d/hasty.conf", (file) => writeFileSync(file, hasty));
    pods = await openPods(cluster);
  });
  after(async () => {
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
  });

  const onMachine = async (...argv: string[]): Promise<string> => {
    const { code, stdout, stderr } = await cluster.runInside(argv, { timeoutMs: 120_000 });
    if (code !== 0) assert.fail(`${argv.join(" ")}: ${stderr}\n${await journal()}`);
    return stdout.trim();
  };
  const journal = async () => (await cluster.runInside(["journalctl", "--unit=graftlet", "--lines=30"])).stdout;
  const property = (name: string) => onMachine("systemctl", "show", `--property=${name}`, "--value", "graftlet");

  test("the unit is activating until the node is ready, and the node runs pods", async () => {
    await onMachine("systemctl", "daemon-reload");
    const since = performance.now();
    await onMachine("systemctl", "start", "graftlet");
    console.log(`systemctl start: ${Math.round(performance.now() - since)} ms`);
    assert.equal(await property("ActiveState"), "active");
    assert.equal(await property("OOMScoreAdjust"), "-999");
    await nodeReady(cluster, cluster.nodeName, 30_000);
    await pods.create("steady", {
      containers: [shell("trap 'sleep 3; exit 7' TERM; while :; do sleep 0.1; done")],
      terminationGracePeriodSeconds: 30,
    });
    await pods.ready("steady");
  });

  test("restarting graftlet by hand, or by the watchdog when it hangs, leaves its pods alone", async () => {
    const before = await pods.ready("steady");
    await onMachine("systemctl", "restart", "graftlet");
    assert.equal(await property("NRestarts"), "0");
    const main = await property("MainPID");
    // Longer than the watchdog's time: it is kept quiet.
    const since = Date.now();
    await cluster.waitFor("nine seconds", () => Date.now() > since + 9_000);
    assert.equal(await property("MainPID"), main);
    await onMachine("kill", "-STOP", main);
    await cluster.waitFor("systemd to start it again", async () => (await property("NRestarts")) === "1", {
      timeoutMs: 60_000,
      explain: journal,
    });
    await cluster.waitFor("its new start", async () => (await property("ActiveState")) === "active", {
      timeoutMs: 60_000,
      explain: journal,
    });
    assert.match(await journal(), /Watchdog timeout/);
    assert.notEqual(await property("MainPID"), main);
    assert.equal(containerId(await pods.ready("steady")), containerId(before));
    assert.equal(statusOf(await pods.ready("steady"))?.restartCount, 0);
  });

  test("a power-off waits until the node's pod has ended", async () => {
    const machine = machineOf(cluster.layout) ?? assert.fail("no machine");
    await cluster.waitFor(
      "the node to delay a shutdown",
      async () => /Kubelet needs time/.test(await onMachine("systemd-inhibit", "--list")),
      { timeoutMs: 30_000, explain: journal },
    );
    await onMachine("systemctl", "poweroff");
    const last = await pods.until("steady", "to have failed", ({ status }) => status?.phase === "Failed");
    assert.equal(statusOf(last)?.state?.terminated?.exitCode, 7);
    assert.equal(last.status?.reason, "Terminated");
    await untilReadiness(cluster, /^False KubeletNotReady .*node is shutting down/, 5_000);
    await cluster.waitFor("the machine to be off", () => !isAlive(machine), { timeoutMs: 90_000 });
  });
});
