import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import type { CallMoment } from "../harness/csi-stops.ts";
import { type GrowingClaims, openGrowingClaims, usingClaim } from "../harness/growing-claims.ts";
import { mountsOf } from "../harness/pod-machine.ts";
import { openPods, type Pods, statusOf } from "../harness/pods.ts";

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

const moments: readonly CallMoment[] = ["before", "within", "after"];

/** A volume grows, and the driver is at it. @returns what lets it answer. */
async function begun(name: string, moment: CallMoment): Promise<() => void> {
  await claims.started(name);
  const done = claims.driver.stopAt(moment, "NodeExpandVolume", [`handle-${name}`]);
  await claims.grow(name);
  await cluster.waitFor("the driver to be at it", done.isReached);
  await isInProgress(name);
  return done.release;
}

/** A volume has grown while no pod had it, another pod starts with it, and the driver is at it. @returns what lets it answer. */
async function begunWithPod(name: string, moment: CallMoment): Promise<() => void> {
  await claims.started(name);
  const gone = pods.gone(name);
  await pods.remove(name, 1);
  await gone;
  await claims.grow(name);
  const done = claims.driver.stopAt(moment, "NodeExpandVolume", [`handle-${name}`]);
  await pods.create(name, usingClaim(name));
  await cluster.waitFor("the driver to be at it", done.isReached);
  await isInProgress(name);
  return done.release;
}

async function isInProgress(name: string): Promise<void> {
  const { status } = await claims.claimNow(name);
  assert.deepEqual(status?.allocatedResourceStatuses, { storage: "NodeResizeInProgress" });
}

const published = (name: string) =>
  mountsOf(cluster).filter((path) => path.endsWith(`/kubernetes.io~csi/${name}/mount`));

test("completes an expansion if graftlet is killed during any call to the driver, and leaves nothing behind", async () => {
  const inUse = moments.map((moment) => `${moment}-in-use`);
  const starting = moments.map((moment) => `${moment}-starting`);
  const names = [...inUse, ...starting];
  const go = await Promise.all(
    moments.flatMap((moment) => [begun(`${moment}-in-use`, moment), begunWithPod(`${moment}-starting`, moment)]),
  );
  await agent.kill("SIGKILL");
  agent = await restart();
  for (const release of go) release();
  for (const name of names) {
    const pod = await pods.until(name, "to be Ready", (found) => statusOf(found)?.ready === true);
    assert.equal(statusOf(pod)?.restartCount, 0);
    await claims.grown(name);
    assert.ok(claims.requests(name).length >= 2, name);
    assert.equal(published(name).length, 1, name);
  }
  const gone = names.map((name) => pods.gone(name));
  await Promise.all(names.map((name) => pods.remove(name, 1)));
  await Promise.all(gone);
  const left = () => mountsOf(cluster).filter((path) => /kubernetes\.io[~/]csi/.test(path));
  await cluster.waitFor("nothing to be left", () => left().length === 0, {
    timeoutMs: 10_000,
    explain: () => left().join("\n"),
  });
});

test("if the driver exits during the expansion, calls it again once it is back", async () => {
  const go = await begun("left", "after");
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
