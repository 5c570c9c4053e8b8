import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { startGraftlet } from "../harness/agent.ts";
import { startLab, type Lab } from "../harness/lab.ts";
import { readiness, untilReadiness } from "../harness/docker-lab.ts";
import { containerId, statusOf } from "../harness/pods.ts";
import { remoteProviderUnderTest } from "../harness/runtime-daemon.ts";
import { cutSsh } from "../harness/ssh-way.ts";
import type { Pod } from "../../src/objects.ts";

// Who owns a target that is reached over SSH: locks there die with the link, and agents meet there though neither listens there.
describe("one target over SSH claimed by several agents", { timeout: 600_000 }, () => {
  let lab: Lab;
  let steady: Pod;
  before(async () => {
    lab = await startLab("ssh-claim", { provider: remoteProviderUnderTest() });
    await lab.pods.create("steady", {});
    steady = await lab.pods.ready("steady");
  });
  after(async () => lab?.[Symbol.asyncDispose]());

  test("a second graftlet with its own root directory waits, with a reason on its Node, while the first has the runtime", async (t) => {
    const { cluster } = lab;
    if (cluster.provider !== "ssh") return t.skip("a Docker Engine is shared by all nodes");
    await using _second = await startGraftlet(cluster, {
      nodeName: "second",
      providerConfig: { rootDir: join(cluster.layout.dir, "second") },
      untilReady: false,
    });
    await cluster.waitFor(
      "the second node to say that the runtime is in use",
      async () =>
        /^False RuntimeInUse the container runtime in \S+ on the target is in use by another graftlet /.test(
          await readiness(cluster, "second"),
        ),
      { timeoutMs: 60_000, explain: () => readiness(cluster, "second") },
    );
    assert.equal(containerId(await lab.pods.ready("steady")), containerId(steady));
    assert.equal(existsSync(join(cluster.layout.dir, "second", "pods")), false);
  });

  test("if another agent acquired the target while the link was cut, graftlet leaves it alone, and uses it again once it is free", async () => {
    const { cluster, agent, pods } = lab;
    await using cut = await cutSsh(cluster);
    await untilReadiness(cluster, /^False LinkDown /);
    // The target finds out as well, so that the lock is free, and another comes.
    await cluster.killSshd();
    await cluster.startSshd();
    const lock = join(agent.rootDir, "graftlet", "lock");
    const rival = cluster.spawnInside(["flock", "--no-fork", lock, "sleep", "3600"]);
    await cluster.waitFor(
      "the other to have the lock",
      async () => (await cluster.runInside(["flock", "--nonblock", lock, "true"])).code === 1,
    );
    await cut.mend();
    const ms = await untilReadiness(
      cluster,
      /^False RuntimeInUse --root-dir ".*" is in use by another graftlet /,
      90_000,
    );
    console.log(`the link is back and the target is another's: the node says so after ${Math.round(ms)} ms`);
    await pods.create("waits", {});
    const since = Date.now();
    await cluster.waitFor("ten seconds", () => Date.now() > since + 10_000);
    assert.equal(pods.history("waits").at(-1)?.status?.phase, "Pending");
    assert.equal(statusOf(pods.history("waits").at(-1) ?? assert.fail())?.state?.running, undefined);

    rival.kill("SIGKILL");
    await untilReadiness(cluster, /^True /, 60_000);
    await pods.ready("waits");
    assert.equal(containerId(await pods.ready("steady")), containerId(steady));
    assert.equal(statusOf(await pods.ready("steady"))?.restartCount, 0);
  });
});
