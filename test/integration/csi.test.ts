import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import {
  NodeServiceCapability_RPC_Type as Capability,
  VolumeUsage_Unit as Unit,
  type VolumeUsage,
} from "../../src/gen/csi.ts";
import type { CSINode, Node, Pod, VolumeAttachment } from "../../src/objects.ts";
import { type Agent, startGraftlet } from "../harness/agent.ts";
import { claim, persistentVolume, storageClass, csiDriver } from "../harness/claims.ts";
import { type Cluster, startCluster } from "../harness/cluster.ts";
import { startTestDriver, type TestDriver, type TestDriverOptions } from "../harness/csi-driver.ts";
import { mount } from "../harness/manifests.ts";
import { mountsOf, podFolder } from "../harness/pod-machine.ts";
import { openPods, type Pods, shell, type SpecDraft } from "../harness/pods.ts";
import { parseExposition } from "../unit/metrics/exposition.ts";

const driverName = "one.csi.graftlet.dev";

let cluster: Cluster;
let agent: Agent;
let pods: Pods;
let driver: TestDriver;
const owned = new AsyncDisposableStack();
before(async () => {
  cluster = owned.use(await startCluster({ name: "csi" }));
  agent = await restart();
  pods = owned.use(await openPods(cluster));
  await inside("mkdir", "-p", disks());
  await cluster.apply([storageClass, csiDriver(driverName, { attachRequired: false, podInfoOnMount: true })]);
  driver = await startDriver({
    // The second is a label by which others place pods.
    info: {
      maxVolumesPerNode: 7n,
      accessibleTopology: { segments: { "topology.graftlet.dev/rack": "r1", tier: "x" } },
    },
  });
  await driverShown(driverName, true);
});
after(async () => {
  await agent?.[Symbol.asyncDispose]();
  await driver?.[Symbol.asyncDispose]();
  await owned.disposeAsync();
});

/** A pod that is to end while graftlet is away ends soon after. */
const restart = () => startGraftlet(cluster, { args: ["-v=6"], config: { syncFrequency: "5s" } });
const disks = () => join(cluster.layout.dir, "disks");
const root = () => cluster.layout.kubeletRoot;
const inside = (...argv: readonly string[]) => cluster.mustRunInside(argv);
const kubectl = (...args: readonly string[]) => cluster.mustKubectl(args);
const textOf = (path: string) => readFileSync(join(cluster.root, path), "utf8");
const isThere = (path: string) => existsSync(join(cluster.root, path));

const startDriver = (more: Partial<TestDriverOptions> = {}) =>
  startTestDriver({
    name: driverName,
    rootDir: root(),
    disks: disks(),
    run: (argv) => cluster.mustRunInside(argv),
    ...more,
  });

/** A volume of a driver and the claim that has it, of one name. */
const volumeOf = (name: string, csi: object = {}, spec: object = {}): readonly object[] => [
  persistentVolume(name, { csi: { driver: driverName, volumeHandle: `handle-${name}`, ...csi }, ...spec }),
  claim(name, name),
];

const using = (name: string, script = "sleep 3600", spec: SpecDraft = {}): SpecDraft => ({
  volumes: [{ name: "v", persistentVolumeClaim: { claimName: name } }],
  containers: [shell(script, { volumeMounts: [mount("v", { mountPath: "/v" })] })],
  ...spec,
});

const node = async () => (await cluster.get<Node>("node", cluster.nodeName)) as Node;
const csiNode = async () => JSON.parse(await kubectl("get", "csinode", cluster.nodeName, "-o", "json")) as CSINode;

/** IDs of the node by driver, as its Node shows them. */
const nodeIds = async () => (await node()).metadata.annotations?.["csi.volume.kubernetes.io/nodeid"] ?? "{}";

/** Waits until the node's objects show a driver, or no longer: one of them is written after the other. */
const driverShown = (name: string, wanted: boolean) =>
  cluster.waitFor(`${name} to be ${wanted ? "" : "no longer "}shown`, async () => {
    const shown = await csiNode();
    const isListed = (shown?.spec.drivers ?? []).some((one) => one.name === name);
    return isListed === wanted && Object.hasOwn(JSON.parse(await nodeIds()) as object, name) === wanted;
  });

const csiMounts = () => mountsOf(cluster).filter((path) => /kubernetes\.io[~/]csi/.test(path));
const published = (uid: string, volume: string) => `${root()}/pods/${uid}/volumes/kubernetes.io~csi/${volume}`;

/** Requests of a method for a volume. */
const requests = (method: string, volume: string) =>
  driver.calls.filter((call) => call.method === method && call.request.volumeId === `handle-${volume}`);

async function removed(name: string): Promise<void> {
  const gone = pods.gone(name);
  await pods.remove(name, 1);
  await gone;
}

describe("volumes of a CSI driver", () => {
  test("lists a driver in CSINode and Node while it is registered", async () => {
    // The node shows a driver first, and tells it then.
    await cluster.waitFor("the driver to be told", () => driver.told.length > 0);
    assert.deepEqual(driver.told, [{ pluginRegistered: true, error: "" }]);
    const shown = await csiNode();
    const { metadata } = await node();
    assert.deepEqual(shown?.spec.drivers, [
      {
        name: driverName,
        nodeID: `${driverName}-node`,
        topologyKeys: ["topology.graftlet.dev/rack"],
        allocatable: { count: 7 },
      },
    ]);
    assert.equal(shown?.metadata.ownerReferences?.[0]?.uid, metadata.uid);
    const { "topology.graftlet.dev/rack": rack, tier } = metadata.labels ?? {};
    assert.deepEqual([rack, tier], ["r1", undefined]);
    const ids = await nodeIds();
    assert.equal(ids, JSON.stringify({ [driverName]: `${driverName}-node` }));
    const [two, key] = ["two.csi.graftlet.dev", "topology.two.csi.graftlet.dev/row"];
    const label = async () => (await node()).metadata.labels?.[key];
    const second = await startDriver({ name: two, info: { accessibleTopology: { segments: { [key]: "7" } } } });
    await driverShown(two, true);
    assert.equal(await label(), undefined, "it has no CSIDriver object");
    await cluster.apply(csiDriver(two, { attachRequired: false }));
    await cluster.waitFor("its label", async () => (await label()) === "7");
    second.stop();
    await driverShown(two, false);
    await cluster.waitFor("its label to be gone", async () => (await label()) === undefined);
    assert.equal(await nodeIds(), ids);
  });

  test("stages a volume once per node, publishes it for each pod, and unstages it after the last pod", async () => {
    const volumeAttributes = { size: "small" };
    await cluster.apply(
      volumeOf("shared", { volumeAttributes, fsType: "ext4" }, { mountOptions: ["noatime", "dirsync"] }),
    );
    await pods.create("first", using("shared", "id -u > /v/written; sleep 3600"));
    const first = await pods.ready("first");
    await pods.create("second", using("shared", "cat /v/written; sleep 3600"));
    const second = await pods.ready("second");
    await pods.logged("second", "0\n");

    const staged = `${root()}/plugins/kubernetes.io/csi/${driverName}`;
    const [sum = ""] = (await inside("ls", staged)).trim().split("\n");
    assert.match(sum, /^[0-9a-f]{64}$/);
    assert.equal(
      textOf(`${staged}/${sum}/vol_data.json`),
      `{"driverName":"${driverName}","volumeHandle":"handle-shared"}\n`,
    );
    const capability = {
      accessMode: { mode: 1 },
      mount: { fsType: "ext4", mountFlags: ["noatime", "dirsync"], volumeMountGroup: "" },
    };
    const [stage, ...more] = requests("NodeStageVolume", "shared");
    assert.equal(more.length, 0);
    assert.equal(stage?.request.stagingTargetPath, `${staged}/${sum}/globalmount`);
    assert.deepEqual(JSON.parse(JSON.stringify(stage?.request.volumeCapability)), capability);
    assert.deepEqual({ ...(stage?.request.volumeContext as object) }, volumeAttributes);
    const publish = requests("NodePublishVolume", "shared");
    assert.deepEqual(
      publish.map(({ request }) => request.targetPath),
      [first, second].map(({ metadata }) => `${published(metadata.uid, "shared")}/mount`),
    );
    const context = publish[0]?.request.volumeContext as Record<string, string>;
    assert.deepEqual(
      { ...context },
      {
        ...volumeAttributes,
        "csi.storage.k8s.io/pod.name": "first",
        "csi.storage.k8s.io/pod.namespace": "default",
        "csi.storage.k8s.io/pod.uid": first.metadata.uid,
        "csi.storage.k8s.io/serviceAccount.name": "default",
        "csi.storage.k8s.io/ephemeral": "false",
      },
    );
    const data = JSON.parse(textOf(`${published(first.metadata.uid, "shared")}/vol_data.json`)) as object;
    assert.deepEqual(Object.keys(data), [
      "attachmentID",
      "driverName",
      "nodeName",
      "specVolID",
      "volumeHandle",
      "volumeLifecycleMode",
    ]);

    await removed("first");
    assert.equal(requests("NodeUnpublishVolume", "shared").length, 1);
    assert.equal(requests("NodeUnstageVolume", "shared").length, 0);
    await removed("second");
    await cluster.waitFor("the volume to be unstaged", () => requests("NodeUnstageVolume", "shared").length === 1);
    await cluster.waitFor("nothing to be left", () => csiMounts().length === 0 && !isThere(`${staged}/${sum}`));
    assert.equal(isThere(podFolder(cluster, first)), false);
    assert.equal(textOf(`${disks()}/handle-shared/written`), "0\n");
  });

  test("applies fsGroup, readOnly, secrets and subPath", async () => {
    await kubectl("create", "secret", "generic", "key", "--from-literal=password=open");
    const nodeStageSecretRef = { name: "key", namespace: "default" };
    const nodePublishSecretRef = nodeStageSecretRef;
    await cluster.apply(volumeOf("more", { fsType: "ext4", nodeStageSecretRef, nodePublishSecretRef }));
    const group = await pods.output(
      "group",
      shell("stat -c %g /v; touch /v/file /part/own; stat -c %g /v/file; ls /v/sub", {
        volumeMounts: [mount("v", { mountPath: "/v" }), mount("v", { mountPath: "/part", subPath: "sub" })],
      }),
      using("more", "", { securityContext: { fsGroup: 2000 } }),
    );
    assert.equal(group, "2000\n2000\nown\n");
    for (const method of ["NodeStageVolume", "NodePublishVolume"])
      assert.deepEqual({ ...(requests(method, "more")[0]?.request.secrets as object) }, { password: "open" });
    await removed("group");
    const readOnly = await pods.output(
      "reader",
      shell("touch /v/other 2>&1", { volumeMounts: [mount("v", { mountPath: "/v" })] }),
      { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "more", readOnly: true } }] },
    );
    assert.match(readOnly, /Read-only file system/);
    await removed("reader");
    await cluster.waitFor("nothing to be left", () => csiMounts().length === 0);
  });

  test("an inline volume gets tokens for the driver, is republished, and is removed with the pod", async () => {
    const name = "inline.csi.graftlet.dev";
    const tokenRequests = [{ audience: "vault", expirationSeconds: 3600 }];
    const volumeLifecycleModes = ["Ephemeral"];
    await cluster.apply([csiDriver(name, { volumeLifecycleModes, requiresRepublish: true, tokenRequests })]);
    await using own = await startDriver({ name, capabilities: [] });
    await driverShown(name, true);
    const text = await pods.output(
      "inline",
      shell("echo mine > /v/file; cat /v/file", { volumeMounts: [mount("v", { mountPath: "/v" })] }),
      { volumes: [{ name: "v", csi: { driver: name, volumeAttributes: { kind: "secrets" } } }] },
    );
    assert.equal(text, "mine\n");
    await cluster.waitFor("the driver to be asked again", () => own.methods().length > 1);
    const [first] = own.calls.filter(({ method }) => method === "NodePublishVolume");
    assert.match(String(first?.request.volumeId), /^csi-[0-9a-f]{64}$/);
    const { kind, ...more } = (first?.request.volumeContext ?? {}) as Record<string, string>;
    assert.equal(kind, "secrets");
    const tokens = JSON.parse(more["csi.storage.k8s.io/serviceAccount.tokens"] ?? "{}") as Record<string, object>;
    assert.deepEqual(Object.keys(tokens), ["vault"]);
    assert.deepEqual(Object.keys(tokens.vault ?? {}), ["token", "expirationTimestamp"]);
    await removed("inline");
    assert.deepEqual(own.methods().at(-1), "NodeUnpublishVolume");
    await cluster.waitFor("nothing to be left", () => csiMounts().length === 0);
  });

  test("a block volume appears in the container as the driver's device, and is removed with the last pod", async () => {
    const file = join(disks(), "raw.img");
    await inside("truncate", "-s", "16M", file);
    const device = (await inside("losetup", "--find", "--show", file)).trim();
    const name = "raw.csi.graftlet.dev";
    await cluster.apply([csiDriver(name, { attachRequired: false })]);
    await using own = await startDriver({ name, device });
    await driverShown(name, true);
    const mode = { volumeMode: "Block" };
    await cluster.apply([
      persistentVolume("raw", { csi: { driver: name, volumeHandle: "handle-raw" }, ...mode }),
      claim("raw", "raw", mode),
    ]);
    const text = await pods.output(
      "raw",
      shell("stat -c %F /dev/data; printf written > /dev/data; sync", {
        volumeDevices: [{ name: "v", devicePath: "/dev/data" }],
      }),
      { volumes: [{ name: "v", persistentVolumeClaim: { claimName: "raw" } }] },
    );
    assert.equal(text, "block special file\n");
    const devices = `${root()}/plugins/kubernetes.io/csi/volumeDevices`;
    assert.deepEqual(
      own.calls.filter(({ method }) => method === "NodeStageVolume").map(({ request }) => request.stagingTargetPath),
      [`${devices}/staging/raw`],
    );
    assert.equal(isThere(`${devices}/raw/data/vol_data.json`), true);
    await removed("raw");
    await cluster.waitFor("the device to be taken from the node", () => own.methods().at(-1) === "NodeUnstageVolume");
    await cluster.waitFor("nothing to be left", () => csiMounts().length === 0 && !isThere(`${devices}/raw`));
    assert.equal(await inside("head", "-c", "7", device), "written");
    await inside("losetup", "-d", device);
  });

  test("waits until a volume is attached, reports it as in use, and releases it at the end", async () => {
    const name = "attached.csi.graftlet.dev";
    await startAttached(name);
    await cluster.apply(volumeOf("far", { driver: name }));
    await pods.create("far", using("far", "cat /v/file; sleep 3600"));
    const unique = `kubernetes.io/csi/${name}^handle-far`;
    await cluster.waitFor("the volume to be in use", async () => (await node()).status?.volumesInUse?.includes(unique));
    const attachment = await cluster.waitFor("an attachment", async () => {
      const { items } = JSON.parse(await kubectl("get", "volumeattachments", "-o", "json")) as {
        items: VolumeAttachment[];
      };
      return items[0];
    });
    assert.match(attachment.metadata.name, /^csi-[0-9a-f]{64}$/);
    const patch = JSON.stringify({ status: { attached: true, attachmentMetadata: { device: "d1" } } });
    await kubectl(
      "patch",
      "volumeattachment",
      attachment.metadata.name,
      "--subresource=status",
      "--type=merge",
      "-p",
      patch,
    );
    await pods.ready("far");
    const stage = attachedDriver?.calls.find(({ method }) => method === "NodePublishVolume");
    assert.deepEqual({ ...(stage?.request.publishContext as object) }, { device: "d1" });
    const metrics = parseExposition(await kubectl("get", "--raw", `/api/v1/nodes/${cluster.nodeName}/proxy/metrics`));
    const told = ["capacity_bytes", "available_bytes", "used_bytes", "inodes", "inodes_free", "inodes_used"];
    assert.deepEqual(
      told.map((figure) => metrics.get(`kubelet_volume_stats_${figure}`)?.samples.map(({ value }) => value)),
      [4_000, 3_000, 900, 40, 30, 9].map((value) => [value]),
    );
    const [sample] = metrics.get("kubelet_volume_stats_capacity_bytes")?.samples ?? [];
    assert.deepEqual(sample?.labels, { namespace: "default", persistentvolumeclaim: "far" });
    await removed("far");
    await cluster.waitFor("the volume to be out of use", async () => !(await node()).status?.volumesInUse?.length);
    assert.deepEqual(attachedDriver?.methods().slice(-1), ["NodeUnpublishVolume"]);
    attachedDriver?.stop();
    await driverShown(name, false);
  });

  test("reports failures with the kubelet's messages, and retries", async () => {
    await cluster.apply([...volumeOf("unknown", { driver: "nobody.csi.graftlet.dev" }), ...volumeOf("broken")]);
    await cluster.apply([csiDriver("nobody.csi.graftlet.dev", { attachRequired: false })]);
    await pods.create("unknown", using("unknown"));
    await pods.event(
      "unknown",
      "FailedMount",
      'MountVolume.MountDevice failed for volume "unknown" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name nobody.csi.graftlet.dev not found in the list of registered CSI drivers',
    );
    driver.fail("NodeStageVolume", status.INVALID_ARGUMENT, "no such disk");
    await pods.create("broken", using("broken"));
    await pods.event(
      "broken",
      "FailedMount",
      'MountVolume.MountDevice failed for volume "broken" : rpc error: code = InvalidArgument desc = no such disk',
    );
    driver.fail("NodeStageVolume", undefined);
    driver.fail("NodePublishVolume", status.INTERNAL, "no room");
    await pods.event(
      "broken",
      "FailedMount",
      'MountVolume.SetUp failed for volume "broken" : rpc error: code = Internal desc = no room',
    );
    driver.fail("NodePublishVolume", undefined);
    await pods.ready("broken");
    await Promise.all(["broken", "unknown"].map(removed));
    await cluster.waitFor("nothing to be left", () => csiMounts().length === 0);
  });

  test("pods keep running after graftlet is killed, and volumes of pods that ended meanwhile are unpublished once the driver is back", async () => {
    await cluster.apply([...volumeOf("stays"), ...volumeOf("ends")]);
    await pods.create("stays", using("stays"));
    await pods.create("ends", using("ends"));
    const [stays, ends] = await Promise.all(["stays", "ends"].map((name) => pods.ready(name)));
    assert.ok(stays && ends);
    await agent.kill("SIGKILL");
    driver.stop();
    await kubectl("delete", "pod", "ends", "--grace-period=1", "--wait=false");
    agent = await restart();
    await cluster.waitFor("a try without a driver", () =>
      agent.log().includes(`driver name ${driverName} not found in the list of registered CSI drivers`),
    );
    // Other pods are not held up, and the volume stays as it was.
    await pods.create("other", { containers: [shell("sleep 3600")] });
    await pods.ready("other");
    await removed("other");
    assert.ok(csiMounts().includes(`${published(ends.metadata.uid, "ends")}/mount`));
    assert.ok(await cluster.get<Pod>("pod", "ends"), "a pod whose volume is not taken back stays");
    driver = await startDriver();
    await cluster.waitFor("the pod to go", async () => (await cluster.kubectl(["get", "pod", "ends"])).code !== 0);
    await cluster.waitFor("its volume to be unstaged", () => requests("NodeUnstageVolume", "ends").length === 1);
    assert.ok(csiMounts().includes(`${published(stays.metadata.uid, "stays")}/mount`));
    assert.equal(requests("NodeUnstageVolume", "stays").length, 0);
    await removed("stays");
    await cluster.waitFor("nothing to be left", () => csiMounts().length === 0);
  });
});

let attachedDriver: TestDriver | undefined;

/** A driver whose volumes are attached, and not staged. */
async function startAttached(name: string): Promise<void> {
  const usage: readonly VolumeUsage[] = [
    { unit: Unit.BYTES, total: 4_000n, available: 3_000n, used: 900n },
    { unit: Unit.INODES, total: 40n, available: 30n, used: 9n },
  ];
  attachedDriver = await startDriver({ name, capabilities: [Capability.GET_VOLUME_STATS], usage });
  await driverShown(name, true);
  await inside("sh", "-c", `mkdir -p ${disks()}/handle-far; echo kept > ${disks()}/handle-far/file`);
}
