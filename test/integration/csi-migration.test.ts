import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import type { Node, VolumeAttachment } from "../../src/objects.ts";
import { claim, csiDriver, persistentVolume, storageClass } from "../harness/claims.ts";
import { startTestDriver } from "../harness/csi-driver.ts";
import { type Lab, startLab } from "../harness/lab.ts";
import { mounts } from "../harness/manifests.ts";
import { shell } from "../harness/pods.ts";
import { volumesLab } from "../harness/volumes.ts";

const driverName = "ebs.csi.aws.com";

let lab: Lab;
before(async () => {
  lab = await startLab("volumes", volumesLab);
});
after(() => lab?.[Symbol.asyncDispose]());

/** Waits for the control plane's attachments, and says that they are attached. */
async function attachAll(count: number): Promise<void> {
  const { cluster } = lab;
  const attachments = await cluster.waitFor(`${count} attachments`, async () => {
    const found = await cluster.mustKubectl(["get", "volumeattachments", "--output=json"]);
    const { items } = JSON.parse(found) as { items: VolumeAttachment[] };
    const own = items.filter(({ spec }) => spec.attacher === driverName);
    return own.length === count && own;
  });
  const patch = ["--subresource=status", "--type=merge", `--patch=${JSON.stringify({ status: { attached: true } })}`];
  for (const { metadata } of attachments)
    await cluster.mustKubectl(["patch", "volumeattachment", metadata.name, ...patch]);
}

test("volumes of an in-tree type are mounted by its CSI driver, for claims and for pods", async () => {
  const { cluster, pods } = lab;
  const disks = join(cluster.layout.dir, "disks");
  await cluster.mustRunInside(["mkdir", "-p", disks]);
  await using driver = await startTestDriver({
    name: driverName,
    rootDir: cluster.layout.kubeletRoot,
    disks,
    run: (argv) => cluster.mustRunInside(argv),
  });
  await cluster.waitFor("the driver to be registered", () => driver.told.length > 0);
  const inTree = { awsElasticBlockStore: { volumeID: "aws://eu-1a/vol-1", fsType: "ext4" } };
  await cluster.apply([
    storageClass,
    csiDriver(driverName, { attachRequired: true }),
    persistentVolume("in-tree", inTree),
    claim("in-tree", "in-tree"),
  ]);
  const volumes = [
    { name: "claimed", persistentVolumeClaim: { claimName: "in-tree" } },
    { name: "own", awsElasticBlockStore: { volumeID: "vol-2", fsType: "ext4", partition: 3 } },
  ];
  const script = "echo kept | tee /claimed/file /own/file; sleep 3600";
  await pods.create("migrated", { volumes, containers: [shell(script, { volumeMounts: mounts(volumes) })] });
  const inUse = async () => (await cluster.get<Node>("node", cluster.nodeName))?.status?.volumesInUse ?? [];
  const names = ["vol-1", "vol-2"].map((handle) => `kubernetes.io/csi/${driverName}^${handle}`);
  await cluster.waitFor("the volumes to be in use", async () => {
    const listed = await inUse();
    return names.every((name) => listed.includes(name));
  });
  await attachAll(2);
  const pod = await pods.ready("migrated");
  const called = (method: string) =>
    driver.calls
      .filter((call) => call.method === method)
      .map(({ request }) => request)
      .sort((a, b) => (String(a.volumeId) < String(b.volumeId) ? -1 : 1));
  const published = called("NodePublishVolume");
  assert.deepEqual(
    published.map(({ volumeId, volumeContext }) => [volumeId, { ...(volumeContext as object) }]),
    [
      ["vol-1", { partition: "0" }],
      ["vol-2", { partition: "3" }],
    ],
  );
  const folder = `${cluster.layout.kubeletRoot}/pods/${pod.metadata.uid}/volumes/kubernetes.io~csi`;
  assert.deepEqual(
    published.map(({ targetPath }) => targetPath),
    [`${folder}/in-tree/mount`, `${folder}/${driverName}-vol-2/mount`],
  );
  const gone = pods.gone("migrated");
  await pods.remove("migrated", 1);
  await gone;
  assert.deepEqual(
    called("NodeUnpublishVolume").map(({ volumeId }) => volumeId),
    ["vol-1", "vol-2"],
  );
  await cluster.waitFor("the volumes to be out of use", async () => (await inUse()).length === 0);
});
