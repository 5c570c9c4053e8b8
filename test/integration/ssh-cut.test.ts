import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { converse } from "../harness/conversation.ts";
import { type LinkLab, startLinkLab, tolerations } from "../harness/link-lab.ts";
import { condition, containerId, shell, statusOf } from "../harness/pods.ts";
import { cutSsh } from "../harness/ssh-way.ts";

/** More than the five minutes after which the cluster evicts pods of a node that is not ready. */
const minutes = Number(process.env.GRAFTLET_LINK_CUT_MINUTES ?? 6);
const lastsMs = minutes * 60_000;

let lab: LinkLab;

before(async () => {
  lab = await startLinkLab("ssh-cut");
});
after(async () => {
  await lab?.[Symbol.asyncDispose]();
});

const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const neighbour = "healthy-neighbour";

/** A second node, which nobody runs, that is ready for as long as its lease is renewed: the cluster evicts nobody while all of its
 *  nodes are not ready. @returns what renews the lease.
 *  @see https://kubernetes.io/docs/concepts/architecture/nodes/#rate-limits-on-eviction */
async function addNeighbour({ api }: LinkLab["pods"]): Promise<() => Promise<void>> {
  const [metadata, spec] = [{ name: neighbour }, { unschedulable: true }];
  await api.create("/api/v1/nodes", { apiVersion: "v1", kind: "Node", metadata, spec });
  const now = () => new Date().toISOString();
  const ready = { type: "Ready", status: "True", reason: "Pretended", lastHeartbeatTime: now() };
  await api.patch(`/api/v1/nodes/${neighbour}/status`, { status: { conditions: [ready] } });
  const micro = () => ({ renewTime: now().replace("Z", "000Z") });
  const lease = { holderIdentity: neighbour, leaseDurationSeconds: 40, ...micro() };
  await api.create(leases, { apiVersion: "coordination.k8s.io/v1", kind: "Lease", metadata, spec: lease });
  return async () => void (await api.patch(`${leases}/${neighbour}`, { spec: micro() }));
}

describe(`a link that is cut for ${minutes} minutes`, { timeout: lastsMs + 300_000 }, () => {
  test("pods with tolerations stay unchanged; others are evicted by the cluster, and terminate once the link is back", async () => {
    const { cluster, pods } = lab;
    const count = shell("i=0; while :; do echo $i; i=$((i+1)); sleep 0.2; done");
    const renew = await addNeighbour(pods);
    await pods.create("counter", { tolerations, containers: [count] });
    await pods.create("evicted", {});
    const [counter] = await Promise.all([pods.ready("counter"), pods.ready("evicted")]);
    await using follower = converse(cluster.startKubectl(["logs", "--follow", "counter"]));
    await follower.says("\n5\n");
    const cutAt = Date.now();
    await using cut = await cutSsh(cluster);
    await lab.nodeSays("False", "LinkDown");
    // The node's lease is renewed all the time: it is never said to be Unknown.
    for (let passed = 0; passed < lastsMs; passed = Date.now() - cutAt) {
      const now = await lab.ready();
      assert.deepEqual([now?.status, now?.reason], ["False", "LinkDown"]);
      await renew();
      const until = Math.min(cutAt + lastsMs, Date.now() + 10_000);
      await cluster.waitFor("time to pass", () => Date.now() >= until, 20_000);
    }
    const taken = pods.history("evicted").at(-1);
    assert.ok(taken?.metadata.deletionTimestamp, "the cluster has evicted it");
    assert.deepEqual([taken.status?.phase, statusOf(taken)?.restartCount], ["Running", 0]);
    const gone = pods.gone("evicted");
    await cut.mend();
    const up = await lab.nodeSays("True", "KubeletReady", 60_000);
    console.log(`cut for ${minutes} minutes: Ready ${up.ms} ms after its end`);
    await gone;
    const last = (await pods.log("counter", "tailLines=1")).trim();
    await follower.says(`\n${last}\n`);
    const lines = follower.stdout().trimEnd().split("\n");
    assert.deepEqual(
      lines,
      lines.map((_, index) => String(index)),
    );
    const again = await pods.ready("counter");
    assert.deepEqual([containerId(again), statusOf(again)?.restartCount], [containerId(counter), 0]);
    assert.equal(condition(await pods.ready("steady"), "Ready")?.status, "True");
    await lab.steadyStands();
  });
});
