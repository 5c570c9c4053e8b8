import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type GrowingClaims, openGrowingClaims } from "../harness/growing-claims.ts";
import { openPods, type Pods } from "../harness/pods.ts";

let cluster: Cluster;
let agent: Agent;
let pods: Pods;
let claims: GrowingClaims;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "claims-expansion-crash" }));
  agent = await restart();
  pods = owned.use(await openPods(cluster));
  claims = await openGrowingClaims(cluster, pods);
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await claims?.[Symbol.asyncDispose]();
  await owned.disposeAsync();
});

/** A pod at rest is looked at soon. */
const restart = () => startGraftlet(cluster, { args: ["-v=6"], config: { syncFrequency: "1s" } });

/** A volume grows, and the driver is at it. @returns what lets it answer. */
async function begun(name: string): Promise<() => void> {
  await claims.started(name);
  const done = claims.driver.stopAt("after", "NodeExpandVolume", [`handle-${name}`]);
  await claims.grow(name);
  await cluster.waitFor("the driver to be at it", done.isReached);
  const { status } = await claims.claimNow(name);
  assert.deepEqual(status?.allocatedResourceStatuses, { storage: "NodeResizeInProgress" });
  return done.release;
}

test("graftlet that is killed while the driver is at it completes it with its next life", async () => {
  const go = await begun("killed");
  await agent.kill("SIGKILL");
  go();
  agent = await restart();
  await claims.grown("killed");
  assert.equal(claims.requests("killed").length, 2);
});

test("a driver that ends while it is at it is asked again when it is back", async () => {
  const go = await begun("left");
  claims.driver.stop();
  await pods.event(
    "left",
    "VolumeResizeFailed",
    /^NodeExpandVolume\.NodeExpandVolume failed for volume "left" : Expander\.NodeExpand failed to expand the volume : rpc error: code = Unavailable /,
  );
  go();
  claims = await openGrowingClaims(cluster, pods);
  await claims.grown("left");
  assert.equal(claims.requests("left").length, 1);
});
