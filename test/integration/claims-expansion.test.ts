import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { claim, localVolume } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { type GrowingClaims, openGrowingClaims, usingClaim } from "../harness/growing-claims.ts";
import { openPods, type Pods } from "../harness/pods.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";

let cluster: Cluster;
let agent: Agent;
let pods: Pods;
let claims: GrowingClaims;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "claims-expansion" }));
  // A pod at rest is looked at soon.
  agent = await startGraftlet(cluster, { args: ["-v=6"], config: { syncFrequency: "1s" } });
  pods = owned.use(await openPods(cluster));
  claims = await openGrowingClaims(cluster, pods);
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await claims?.[Symbol.asyncDispose]();
  await owned.disposeAsync();
});

const inside = (...argv: readonly string[]) => cluster.mustRunInside(argv);
const kubectl = (...args: readonly string[]) => cluster.mustKubectl(args);

async function removed(...names: readonly string[]): Promise<void> {
  await Promise.all(names.map((name) => pods.remove(name, 1)));
  await Promise.all(names.map((name) => pods.gone(name)));
}

const succeeded = (name: string) => `MountVolume.NodeExpandVolume succeeded for volume "${name}" ${cluster.nodeName}`;

describe("claim expansion", { concurrency: true }, () => {
  test("expands a volume in use once per node, and updates the claim's size", async () => {
    await claims.started("online", "online-2");
    await claims.grow("online");
    await claims.grown("online");
    const [{ request } = { request: {} as Record<string, unknown> }, ...more] = claims.requests("online");
    assert.equal(more.length, 0);
    assert.match(String(request.volumePath), /\/volumes\/kubernetes\.io~csi\/online\/mount$/);
    assert.match(String(request.stagingTargetPath), /\/kubernetes\.io\/csi\/[^/]+\/[0-9a-f]{64}\/globalmount$/);
    assert.deepEqual({ ...(request.capacityRange as object) }, { requiredBytes: 2n ** 31n, limitBytes: 0n });
    const { involvedObject } = await cluster.waitFor("the claim's event", async () => {
      const { items } = JSON.parse(await kubectl("get", "events", "-o", "json")) as {
        items: { reason: string; message: string; involvedObject: { kind: string; name: string } }[];
      };
      return items.find(
        ({ involvedObject: { kind }, reason, message }) =>
          kind === "PersistentVolumeClaim" &&
          reason === "FileSystemResizeSuccessful" &&
          message === succeeded("online"),
      );
    });
    assert.equal(involvedObject.name, "online");
    const metrics = parseExposition(await kubectl("get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`));
    const counts = metrics
      .get("storage_operation_duration_seconds")
      ?.samples.filter(({ name, labels }) => name.endsWith("_count") && labels.operation_name === "volume_fs_resize")
      .filter(({ labels }) => labels.volume_plugin === "kubernetes.io/csi:grows.csi.graftlet.dev");
    assert.ok(counts?.some(({ labels, value }) => labels.status === "success" && value > 0));
    await removed("online", "online-2");
  });

  test("reports a size that the driver rejects, and does not request it again", async () => {
    await claims.started("never");
    claims.driver.fail("NodeExpandVolume", status.OUT_OF_RANGE, "too big", "handle-never");
    await claims.grow("never");
    const why = "Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = too big";
    await pods.event(
      "never",
      "VolumeResizeFailed",
      `NodeExpandVolume.NodeExpandVolume failed for volume "never" : ${why}`,
    );
    const { status: shown } = await claims.claimNow("never");
    assert.deepEqual(shown?.allocatedResourceStatuses, { storage: "NodeResizeInfeasible" });
    assert.deepEqual(shown.conditions?.map(({ type, message }) => [type, message]).sort(), [
      ["FileSystemResizePending", undefined],
      ["NodeResizeError", `failed to expand pvc with ${why}`],
    ]);
    await removed("never");
    assert.equal(claims.requests("never").length, 1);
  });

  test("expands a volume that grew while no pod used it before the next pod starts", async () => {
    await claims.started("offline");
    await removed("offline");
    await claims.grow("offline");
    claims.driver.fail("NodeExpandVolume", status.INTERNAL, "not now", "handle-offline");
    await pods.create("later", usingClaim("offline"));
    const why = "Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = not now";
    await pods.event(
      "later",
      "FailedMount",
      `MountVolume.Setup failed while expanding volume for volume "offline" : ${why}`,
    );
    claims.driver.fail("NodeExpandVolume", undefined, "", "handle-offline");
    await pods.ready("later");
    await claims.grown("offline");
    await removed("later");
  });

  test("grows a local volume's file system with its device, while a pod writes to it", async () => {
    const file = join(claims.disks, "block.img");
    await inside("truncate", "-s", "320M", file);
    const device = (await inside("losetup", "--find", "--show", file)).trim();
    // Of XFS: ext4 asks for a right that not every machine of tests has (CAP_SYS_RESOURCE).
    const local = { path: device, fsType: "xfs" };
    await cluster.apply([localVolume("block", device, cluster.nodeName, { local }), claim("block", "block")]);
    const script =
      "size() { df -Pk /v | awk 'END { print $2 }'; }; was=$(size); until [ $(size) -gt $((was * 2)) ]; do date > /v/file; sleep 1; done; echo grown; sleep 3600";
    await pods.create("block", usingClaim("block", script));
    await pods.ready("block");
    await inside("truncate", "-s", "960M", file);
    await inside("losetup", "--set-capacity", device);
    await kubectl("patch", "pv", "block", "--type=merge", "-p", '{"spec":{"capacity":{"storage":"2Gi"}}}');
    await pods.event("block", "FileSystemResizeSuccessful", succeeded("block"));
    await pods.logged("block", "grown\n");
    await claims.grown("block");
    await removed("block");
    await inside("losetup", "-d", device);
  });
});
