import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startGraftlet } from "../harness/agent.ts";
import { readiness, untilReadiness } from "../harness/docker-lab.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { statusOf } from "../harness/pods.ts";
import { isRemote, providerUnderTest } from "../harness/runtime-daemon.ts";

// The lock that makes a target one agent's, where it may be lost though the link to the target stays up.
describe("an agent whose lock on its target is at risk", { timeout: 600_000 }, () => {
  const remote = isRemote(providerUnderTest());
  let lab: Lab;
  before(async () => {
    lab = await startLab("lock-lost");
    await lab.pods.create("steady", {});
    await lab.pods.ready("steady");
  });
  after(async () => lab?.[Symbol.asyncDispose]());

  const lockFile = () => join(lab.agent.rootDir, "graftlet", "lock");
  const isFree = async () => (await lab.cluster.runInside(["flock", "--nonblock", lockFile(), "true"])).code === 0;
  const startSecond = () => {
    const rootDir = join(lab.cluster.layout.dir, "second");
    return startGraftlet(lab.cluster, {
      nodeName: "second",
      untilReady: false,
      config: { port: 10_350, healthzPort: 10_358 },
      ...(remote ? { providerConfig: { rootDir } } : { rootDir }),
    });
  };

  test("re-acquires the lock after its holder was killed, without affecting pods", async (t) => {
    const { cluster, agent, pods } = lab;
    if (remote) {
      const holders = `for fd in /proc/[0-9]*/fd/8; do
        if [ "$(readlink $fd)" = "$1" ]; then pid=\${fd#/proc/}; echo "\${pid%%/*}"; fi
      done; true`;
      const { stdout } = await cluster.runInside(["sh", "-c", holders, "sh", lockFile()]);
      const pids = stdout.trim().split("\n");
      assert.equal(pids.length, 1, stdout);
      await cluster.runInside(["kill", "-KILL", ...pids]);
      await cluster.waitFor("the lock to be taken again", () =>
        agent.log().includes("re-acquired the root directory lock"),
      );
      // Nothing that limits the attempt to take it again ends it later.
      await new Promise((resolve) => setTimeout(resolve, 25_000));
      assert.equal(agent.log().split("lost the root directory lock").length - 1, 1);
    } else {
      const children = await cluster.runInside(["ps", "-o", "pid=,args=", "--ppid", String(agent.pid)]);
      t.diagnostic(`children of graftlet: ${children.stdout.trim() || "none"}`);
      for (const [pid] of children.stdout.matchAll(/^\s*\d+/gm)) await cluster.runInside(["kill", "-KILL", pid.trim()]);
    }
    assert.equal(await isFree(), false);
    await pods.create("after-kill", {});
    await pods.ready("after-kill");
    assert.match(await readiness(cluster, cluster.nodeName), /^True /);
    assert.equal(statusOf(await pods.ready("steady"))?.restartCount, 0);
  });

  test("starts nothing after being stopped for 90 seconds if another agent has acquired the target", async (t) => {
    if (!remote) return t.skip("on its own machine a stopped process keeps its lock");
    const { cluster, agent, pods } = lab;
    {
      await using _second = await startSecond();
      await untilReadiness(cluster, /^False RuntimeInUse /, 60_000, "second");
      agent.signal("SIGSTOP");
      const stoppedAt = performance.now();
      const ms = await untilReadiness(cluster, /^True /, 120_000, "second");
      t.diagnostic(`the second has the target ${Math.round(ms)} ms after the first was stopped`);
      await pods.create("late", { nodeName: cluster.nodeName });
      await cluster.waitFor("90 seconds", () => performance.now() - stoppedAt > 90_000, 100_000);
      agent.signal("SIGCONT");
      await untilReadiness(cluster, /^False RuntimeInUse /, 60_000);
      const since = performance.now();
      await cluster.waitFor("ten seconds", () => performance.now() - since > 10_000);
      const late = pods.history("late").at(-1);
      assert.equal(late?.status?.phase, "Pending");
      assert.equal(statusOf(late)?.state?.running, undefined);
      assert.match(await readiness(cluster, "second"), /^True /);
    }
    await untilReadiness(cluster, /^True /, 120_000);
    await pods.ready("late");
  });

  test("keeps its machine after being stopped for 90 seconds, and a second agent is refused", async (t) => {
    if (remote) return t.skip("over SSH a stopped process loses its lock");
    const { cluster, agent, pods } = lab;
    agent.signal("SIGSTOP");
    const stoppedAt = performance.now();
    await pods.create("late", { nodeName: cluster.nodeName });
    await cluster.waitFor("90 seconds", () => performance.now() - stoppedAt > 90_000, 100_000);
    {
      await using second = await startSecond();
      assert.equal((await second.ended).code, 1);
      assert.match(second.log(), /is in use by another graftlet \(RuntimeInUse\)/);
    }
    agent.signal("SIGCONT");
    await pods.ready("late");
    assert.equal(statusOf(await pods.ready("steady"))?.restartCount, 0);
  });
});
