import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { particulars } from "../harness/particulars.ts";
import { openPods, type Pods } from "../harness/pods.ts";
import {
  clear,
  evictionsTold,
  keepingMemory,
  onlyEvicted,
  scarceMemory,
  untilCondition,
  untilEvicted,
  untouched,
} from "../harness/pressure.ts";
import { providerUnderTest } from "../harness/runtime-daemon.ts";
import type { RuntimeProxy } from "../harness/runtime-proxy.ts";

// A proxy between graftlet and the runtime makes the points exact at which it is killed.
describe("graftlet killed while it evicts a pod", { timeout: 900_000 }, () => {
  const { moments, startProxy } = particulars[providerUnderTest()];
  /** Those of a pod that stays in the API server: nothing of it is removed before it is deleted. */
  const five = moments.end.slice(0, 5);
  const others = ["guaranteed", "burstable", "little"];
  let cluster: Cluster;
  let proxy: RuntimeProxy;
  let agent: Agent;
  let pods: Pods;
  let config: object;

  const start = async (more: object) => {
    agent = await startGraftlet(cluster, {
      config: { evictionPressureTransitionPeriod: "5s", ...more },
      runtimeSocket: proxy.socket,
    });
  };

  before(async () => {
    cluster = await startCluster({ name: "eviction-crash" });
    proxy = await startProxy(cluster);
    pods = await openPods(cluster);
    await start({});
    config = await scarceMemory(cluster, 400);
    await agent.stop();
    await start(config);
    await pods.create("guaranteed", keepingMemory(80, { limits: "120Mi" }));
    await pods.create("burstable", keepingMemory(60, { requests: "100Mi" }));
    await pods.create("little", keepingMemory(10));
    await Promise.all(others.map((name) => pods.ready(name)));
  });
  after(async () => {
    await agent?.[Symbol.asyncDispose]();
    await pods?.[Symbol.asyncDispose]();
    await cluster?.[Symbol.asyncDispose]();
    await proxy?.[Symbol.asyncDispose]();
  });

  for (const [index, moment] of five.entries())
    it(`killed ${moment}: after the next start, the same pod is evicted and no other`, async () => {
      const name = `much-${index}`;
      const killed = proxy.stopAt(moment, () => agent.kill("SIGKILL"));
      await pods.create(name, { ...keepingMemory(160), terminationGracePeriodSeconds: 1 });
      await killed;
      await start(config);
      const { status } = await untilEvicted(pods, name);
      assert.equal(status?.reason, "Evicted");
      assert.match(status?.message ?? "", /^The node was low on resource: memory\. Threshold quantity: 100Mi, /);
      await untilCondition(cluster, "MemoryPressure", "False");
      await untouched(pods, others);
      await onlyEvicted(
        pods,
        five.slice(0, index + 1).map((_, each) => `much-${each}`),
      );
      const failed = await pods.until(name, "to be known", () => true);
      assert.equal(failed.status?.phase, "Failed", "it stays evicted");
      await clear(pods, [name]);
    });

  it("killed after the pod's status was written: no other pod is affected", async () => {
    await pods.create("told", { ...keepingMemory(160), terminationGracePeriodSeconds: 1 });
    await untilEvicted(pods, "told");
    await agent.kill("SIGKILL");
    await start(config);
    await untilCondition(cluster, "MemoryPressure", "False");
    await pods.create("after", keepingMemory(1, { requests: "10Mi" }));
    await pods.ready("after");
    await untouched(pods, [...others, "after"]);
    assert.equal((await evictionsTold(pods)).get("told"), 1);
    await clear(pods, ["told", "after"]);
  });
});
