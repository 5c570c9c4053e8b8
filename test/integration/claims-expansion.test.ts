import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { NodeServiceCapability_RPC_Type as Capability } from "../../src/gen/csi.ts";
import type { CSINode, PersistentVolumeClaim } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { claim, localVolume, persistentVolume, storageClass } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startTestDriver, type TestDriver } from "../harness/csi-driver.ts";
import { mount } from "../harness/manifests.ts";
import { openPods, type Pods, shell, type SpecDraft } from "../harness/pods.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";

const driverName = "grows.csi.graftlet.dev";

let cluster: Cluster;
let agent: Agent;
let pods: Pods;
let driver: TestDriver;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "claims-expansion" }));
  agent = await restart();
  pods = owned.use(await openPods(cluster));
  await inside("mkdir", "-p", disks());
  const csiDriver = { apiVersion: "storage.k8s.io/v1", kind: "CSIDriver", metadata: { name: driverName } };
  await cluster.apply([storageClass, { ...csiDriver, spec: { attachRequired: false } }]);
  driver = await startTestDriver({
    name: driverName,
    rootDir: cluster.layout.kubeletRoot,
    disks: disks(),
    run: (argv) => cluster.mustRunInside(argv),
    capabilities: [Capability.STAGE_UNSTAGE_VOLUME, Capability.EXPAND_VOLUME],
  });
  await cluster.waitFor("the driver to be shown", async () => {
    const shown = JSON.parse(await kubectl("get", "csinode", cluster.nodeName, "-o", "json")) as CSINode;
    return shown.spec.drivers?.some(({ name }) => name === driverName);
  });
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await driver?.[Symbol.asyncDispose]();
  await owned.disposeAsync();
});

/** A pod at rest is looked at soon. */
const restart = () => startGraftlet(cluster, { args: ["-v=6"], config: { syncFrequency: "2s" } });
const disks = () => join(cluster.layout.dir, "disks");
const inside = (...argv: readonly string[]) => cluster.mustRunInside(argv);
const kubectl = (...args: readonly string[]) => cluster.mustKubectl(args);

const using = (name: string): SpecDraft => ({
  volumes: [{ name: "v", persistentVolumeClaim: { claimName: name } }],
  containers: [shell("sleep 3600", { volumeMounts: [mount("v", { mountPath: "/v" })] })],
});

/** Starts pods with a new volume of the driver. */
async function started(name: string, ...others: readonly string[]): Promise<void> {
  await cluster.apply([
    persistentVolume(name, { csi: { driver: driverName, volumeHandle: `handle-${name}` } }),
    claim(name, name),
  ]);
  for (const pod of [name, ...others]) await pods.create(pod, using(name));
  await Promise.all([name, ...others].map((pod) => pods.ready(pod)));
}

/** The volume becomes bigger, and the claim says so as a resizer writes it. */
async function grow(name: string): Promise<void> {
  const patch = (what: string, body: object, ...more: readonly string[]) =>
    kubectl("patch", what, name, "--type=merge", "-p", JSON.stringify(body), ...more);
  await patch("pv", { spec: { capacity: { storage: "2Gi" } } });
  const allocated = {
    allocatedResources: { storage: "2Gi" },
    allocatedResourceStatuses: { storage: "NodeResizePending" },
    conditions: [{ type: "FileSystemResizePending", status: "True" }],
  };
  await patch("pvc", { status: allocated }, "--subresource=status");
}

const claimNow = async (name: string) =>
  JSON.parse(await kubectl("get", "pvc", name, "-o", "json")) as PersistentVolumeClaim;

/** Waits until a claim shows its new size, and nothing of the way there. */
async function grown(name: string): Promise<void> {
  await cluster.waitFor(`${name} to have grown`, async () => {
    const { status: shown } = await claimNow(name);
    return shown?.capacity?.storage === "2Gi" && !shown.allocatedResourceStatuses && !shown.conditions;
  });
}

const requests = (name: string) =>
  driver.calls.filter((call) => call.method === "NodeExpandVolume" && call.request.volumeId === `handle-${name}`);

async function removed(...names: readonly string[]): Promise<void> {
  await Promise.all(names.map((name) => pods.remove(name, 1)));
  await Promise.all(names.map((name) => pods.gone(name)));
}

const succeeded = (name: string) => `MountVolume.NodeExpandVolume succeeded for volume "${name}" ${cluster.nodeName}`;

describe("claims whose volumes grow", () => {
  test("a volume in use is expanded once for the node, and its claim has its size", async () => {
    await started("online", "online-2");
    await grow("online");
    await grown("online");
    const [{ request } = { request: {} as Record<string, unknown> }, ...more] = requests("online");
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
      ?.samples.filter(({ name, labels }) => name.endsWith("_count") && labels.operation_name === "volume_fs_resize");
    assert.deepEqual(
      counts?.map(({ labels, value }) => [labels.volume_plugin, labels.status, value]),
      [["kubernetes.io/csi", "success", 1]],
    );
    await removed("online", "online-2");
  });

  test("a size that a driver cannot give is shown as such, and not asked for again", async () => {
    await started("never");
    driver.fail("NodeExpandVolume", status.OUT_OF_RANGE, "too big");
    await grow("never");
    const why = "Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = too big";
    await pods.event(
      "never",
      "VolumeResizeFailed",
      `NodeExpandVolume.NodeExpandVolume failed for volume "never" : ${why}`,
    );
    const { status: shown } = await claimNow("never");
    assert.deepEqual(shown?.allocatedResourceStatuses, { storage: "NodeResizeInfeasible" });
    assert.deepEqual(shown.conditions?.map(({ type, message }) => [type, message]).sort(), [
      ["FileSystemResizePending", undefined],
      ["NodeResizeError", `failed to expand pvc with ${why}`],
    ]);
    driver.fail("NodeExpandVolume", undefined);
    await removed("never");
    assert.equal(requests("never").length, 1);
  });

  test("graftlet that is killed while the driver is at it completes it with its next life", async () => {
    await started("killed");
    const go = driver.hold("NodeExpandVolume");
    await grow("killed");
    await cluster.waitFor("the driver to be at it", () => requests("killed").length === 1);
    await agent.kill("SIGKILL");
    go();
    const { status: shown } = await claimNow("killed");
    assert.deepEqual(shown?.allocatedResourceStatuses, { storage: "NodeResizeInProgress" });
    agent = await restart();
    await grown("killed");
    assert.equal(requests("killed").length, 2);
    await removed("killed");
  });

  test("a volume that grew while no pod had it is expanded before the pod starts", async () => {
    await started("offline");
    await removed("offline");
    await grow("offline");
    driver.fail("NodeExpandVolume", status.INTERNAL, "not now");
    await pods.create("later", using("offline"));
    const why = "Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = not now";
    await pods.event(
      "later",
      "FailedMount",
      `MountVolume.Setup failed while expanding volume for volume "offline" : ${why}`,
    );
    driver.fail("NodeExpandVolume", undefined);
    await pods.ready("later");
    await grown("offline");
    await removed("later");
  });

  test("a local volume's file system grows with its device, while a pod writes to it", async () => {
    const file = join(disks(), "block.img");
    await inside("truncate", "-s", "320M", file);
    const device = (await inside("losetup", "--find", "--show", file)).trim();
    // Of XFS: ext4 asks for a right that not every machine of tests has (CAP_SYS_RESOURCE).
    const local = { path: device, fsType: "xfs" };
    await cluster.apply([localVolume("block", device, cluster.nodeName, { local }), claim("block", "block")]);
    const script =
      "size() { df -Pk /v | awk 'END { print $2 }'; }; was=$(size); until [ $(size) -gt $((was * 2)) ]; do date > /v/file; sleep 1; done; echo grown; sleep 3600";
    await pods.create("block", {
      ...using("block"),
      containers: [shell(script, { volumeMounts: [mount("v", { mountPath: "/v" })] })],
    });
    await pods.ready("block");
    await inside("truncate", "-s", "960M", file);
    await inside("losetup", "--set-capacity", device);
    await kubectl("patch", "pv", "block", "--type=merge", "-p", '{"spec":{"capacity":{"storage":"2Gi"}}}');
    await pods.event("block", "FileSystemResizeSuccessful", succeeded("block"));
    await cluster.waitFor("the pod to see it", async () => (await pods.log("block")) === "grown\n");
    await grown("block");
    await removed("block");
    await inside("losetup", "-d", device);
  });
});
