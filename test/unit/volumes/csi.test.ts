import assert from "node:assert/strict";
import { test } from "node:test";
import { NodeServiceCapability_RPC_Type as Capability } from "../../../src/gen/csi.ts";
import { CodedError, messageOf } from "../../../src/lib/errors.ts";
import { PodRejectedError } from "../../../src/pod/rejected.ts";
import type { NodePublishVolumeRequest, NodeStageVolumeRequest } from "../../../src/gen/csi.ts";
import type { Volume } from "../../../src/objects.ts";
import { aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { bound, data, longer, published, staged } from "./csi-bench.ts";
import { directoryOf, podWith, rootDir, volumeBench } from "./volume-bench.ts";

const other = { uid: "uid-2", name: "other" };

test("stages a volume once, publishes it to each pod, and unstages it after the last", async () => {
  const bench = bound();
  const stage = bench.start();
  await stage.recover(never);
  await stage.mount(podWith([data]), never);
  await stage.mount(podWith([data], {}, other), never);
  assert.equal(stage.mounted("uid-1").get("v")?.hostPath, `${published}/mount`);
  const second = published.replace("uid-1", "uid-2");
  assert.deepEqual(bench.storage.calls, [
    `stage h ${staged}/globalmount`,
    `publish h ${published}/mount`,
    `publish h ${second}/mount`,
  ]);
  assert.equal(bench.host.files.text(`${staged}/vol_data.json`), '{"driverName":"d","volumeHandle":"h"}\n');
  bench.storage.calls.length = 0;
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.storage.calls, [`unpublish h ${published}/mount`]);
  await stage.unmount("uid-2", never);
  assert.deepEqual(bench.storage.calls.slice(1), [`unpublish h ${second}/mount`, `unstage h ${staged}/globalmount`]);
  assert.deepEqual(bench.host.files.mounted(), []);
  assert.deepEqual(bench.host.files.tree(`${rootDir}/plugins/kubernetes.io/csi`), [
    `${rootDir}/plugins/kubernetes.io/csi/d`,
  ]);
});

test("forgets a mount that the driver rejected; unpublishes one that may still succeed", async () => {
  const bench = bound();
  const { storage, clock, events } = bench;
  const stage = bench.start();
  storage.failures.set("stage", new CodedError("invalid_argument", "rpc error: code = InvalidArgument desc = no"));
  const mounting = stage.mount(podWith([data]), never);
  await clock.advance(100);
  assert.deepEqual(events, [
    'Pod Warning FailedMount: MountVolume.MountDevice failed for volume "pv" : rpc error: code = InvalidArgument desc = no',
  ]);
  assert.deepEqual(bench.host.files.tree(`${rootDir}/plugins/kubernetes.io/csi/d`), []);
  storage.failures.set("publish", new CodedError("conflict", "rpc error: code = Aborted desc = pending"));
  await clock.advance(500);
  assert.equal(events.length, 2);
  assert.match(bench.host.files.text(`${published}/vol_data.json`), /"driverName":"d"/);
  await clock.advance(1_000);
  await mounting;
  assert.equal(storage.calls.filter((call) => call.startsWith("stage ")).length, 2, "it stays staged between tries");
});

test("reports an unregistered driver, keeps its volumes until it is back, and unmounts all others", async () => {
  const bench = bound();
  const { storage, clock } = bench;
  const stage = bench.start();
  const withMemory = [data, { name: "memory", emptyDir: { medium: "Memory" } }];
  await stage.mount(podWith(withMemory), never);
  storage.registered.clear();
  const ending = assert.rejects(stage.unmount("uid-1", never), {
    message:
      "kubernetes.io/csi: Unmounter.TearDownAt failed: driver name d not found in the list of registered CSI drivers",
  });
  await longer(bench);
  await ending;
  assert.deepEqual(
    bench.host.files.mounted().map(({ path }) => path),
    [`${staged}/globalmount`, `${published}/mount`],
  );
  storage.registered.add("d");
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.host.files.mounted(), []);
  await clock.advance(0);
});

test("after a restart, only attached volumes count as in use once the Node has been read", async () => {
  const bench = bound();
  await bench.start().mount(podWith([data]), never);
  bench.isNodeKnown = false;
  await bench.start().recover(never);
  await bench.clock.advance(1_000);
  assert.equal(bench.inUse, undefined, "the Node keeps what it shows");
  bench.isNodeKnown = true;
  await bench.clock.advance(1_000);
  assert.deepEqual(bench.inUse, [], "the driver wants no attachment");
});

test("after a restart, staged volumes stay in use until no pod has them, and are then unstaged", async () => {
  const bench = bound();
  const { storage, clock } = bench;
  await bench.start().mount(podWith([data]), never);
  storage.status = { volumesAttached: [{ name: "kubernetes.io/csi/d^h", devicePath: "" }] };
  const next = bench.start();
  await next.recover(never);
  assert.deepEqual(bench.inUse, ["kubernetes.io/csi/d^h"]);
  storage.registered.clear();
  storage.calls.length = 0;
  const ending = assert.rejects(next.unmount("uid-1", never));
  await longer(bench);
  await ending;
  storage.registered.add("d");
  await next.unmount("uid-1", never);
  await clock.advance(0);
  assert.deepEqual(storage.calls, [`unpublish h ${published}/mount`, `unstage h ${staged}/globalmount`]);
  assert.deepEqual(bench.inUse, []);
});

test("does not unstage a volume that another pod is waiting for", async () => {
  const bench = bound();
  const { storage, clock } = bench;
  const stage = bench.start();
  await stage.recover(never);
  storage.failures.set("stage", new CodedError("deadline_exceeded", "slow"));
  const mounting = stage.mount(podWith([data]), never);
  await clock.advance(100);
  const unbound: Volume = { name: "v", persistentVolumeClaim: { claimName: "unbound" } };
  await assert.rejects(stage.mount(podWith([unbound], {}, other), AbortSignal.abort()));
  await stage.unmount("uid-2", never);
  await clock.advance(10_000);
  await mounting;
  assert.deepEqual(storage.calls, [
    `stage h ${staged}/globalmount`,
    `stage h ${staged}/globalmount`,
    `publish h ${published}/mount`,
  ]);
  await stage.unmount("uid-1", never);
  assert.equal(storage.calls.at(-1), `unstage h ${staged}/globalmount`);
});

test("rejects a pod above the attachment limit if the driver has limit updates enabled", async () => {
  const bench = bound();
  const { storage, clock } = bench;
  const attachment = "csi-c42cf57099d6443b605c16f111056170d3d4e01cedcbcbac71a93245953703cf";
  const refused = (errorCode: number) =>
    storage.attachments.set(attachment, {
      metadata: { name: attachment },
      spec: { attacher: "d", nodeName: "node", source: { persistentVolumeName: "pv" } },
      status: { attached: false, attachError: { message: "full", errorCode } },
    });
  const stage = bench.start();
  await stage.recover(never);
  const waited = async () => {
    const mounting = stage.mount(podWith([data]), never).catch((error: unknown) => error);
    await clock.advance(124_000);
    return mounting;
  };
  const which =
    "unmounted volumes=[v], unattached volumes=[v], failed to process volumes=[]: context deadline exceeded";
  const about = (spec: object) => storage.objects.set("d", { metadata: { name: "d" }, spec });
  about({});
  refused(8);
  assert.equal(messageOf(await waited()), `Unable to attach or mount volumes: ${which}`);
  about({ nodeAllocatableUpdatePeriodSeconds: 60 });
  refused(13);
  assert.equal(messageOf(await waited()), `Unable to attach or mount volumes: ${which}`);
  assert.deepEqual(storage.calls, []);
  refused(8);
  const error = await waited();
  assert.ok(error instanceof PodRejectedError);
  assert.deepEqual(error.rejection, {
    reason: "VolumeAttachmentLimitExceeded",
    message: `Node has reached its volume attachment limit, rejecting pod. ${which}`,
  });
  assert.deepEqual(storage.calls, ["refresh d"]);
});

test("requests contain the access mode that the driver supports, the fsGroup, and pod info if wanted", async () => {
  const bench = bound({ accessModes: ["ReadWriteOncePod"], mountOptions: ["z", "a"] }, { fsType: "xfs" });
  const { storage } = bench;
  storage.capabilities.add(Capability.SINGLE_NODE_MULTI_WRITER).add(Capability.VOLUME_MOUNT_GROUP);
  storage.objects.set("d", { metadata: { name: "d" }, spec: { attachRequired: false, podInfoOnMount: true } });
  await bench.start().mount(podWith([data], { securityContext: { fsGroup: 2000 } }), never);
  const [stage, publish] = storage.requests as readonly NodeStageVolumeRequest[];
  assert.deepEqual(stage?.volumeCapability, {
    accessMode: { mode: 6 },
    block: undefined,
    mount: { fsType: "xfs", mountFlags: ["z", "a"], volumeMountGroup: "2000" },
  });
  assert.equal(publish?.volumeContext["csi.storage.k8s.io/pod.uid"], "uid-1");
  assert.equal(stage.volumeContext["csi.storage.k8s.io/pod.uid"], undefined);
});

test("passes secrets to the driver; a missing one is reported", async () => {
  const reference = { name: "key", namespace: "default" };
  const bench = bound({}, { nodeStageSecretRef: reference, nodePublishSecretRef: reference });
  const mounting = bench.start().mount(podWith([data]), never);
  await bench.clock.advance(100);
  assert.match(
    bench.events[0] ?? "",
    /MountVolume\.MountDevice failed for volume "pv" : fetching NodeStageSecretRef default\/key failed: kubernetes\.io\/csi: failed to find the secret key in the namespace default with error: secret "key" not found$/,
  );
  bench.setSecret("key", { password: Buffer.from([0x61, 0xff]) });
  await bench.clock.advance(1_000);
  assert.match(
    bench.events.at(-1) ?? "",
    /fetching NodeStageSecretRef default\/key failed: kubernetes\.io\/csi: key password of the secret is not valid UTF-8, as CSI requires$/,
  );
  bench.setSecret("key", { password: "open" });
  await bench.clock.advance(2_000);
  await mounting;
  for (const request of bench.storage.requests as readonly NodeStageVolumeRequest[])
    assert.deepEqual(request.secrets, { password: "open" });
});

test("rejects a claim on a driver for inline volumes only", async () => {
  const bench = bound();
  const spec = { attachRequired: false, volumeLifecycleModes: ["Ephemeral"] };
  bench.storage.objects.set("d", { metadata: { name: "d" }, spec });
  const giveUp = new AbortController();
  const mounting = bench.start().mount(podWith([data]), giveUp.signal);
  await bench.clock.advance(100);
  giveUp.abort();
  await assert.rejects(mounting);
  assert.match(
    bench.events[0] ?? "",
    /MountVolume\.SetUp failed for volume "pv" : kubernetes\.io\/csi: mounter\.SetupAt failed to check volume lifecycle mode: volume mode "Persistent" not supported by driver d \(only supports \["Ephemeral"\]\)$/,
  );
});

const asDevice = {
  containers: [aContainer("c", { volumeDevices: [{ name: "v", devicePath: "/dev/v" }] })],
};

test("stages, publishes and links a block volume, and removes it based on the target's state", async () => {
  const bench = bound({ volumeMode: "Block" });
  const { storage } = bench;
  const { files } = bench.host;
  storage.capabilities.add(Capability.GET_VOLUME_STATS);
  const stage = bench.start();
  await stage.mount(podWith([data], asDevice), never);
  const all = `${rootDir}/plugins/kubernetes.io/csi/volumeDevices`;
  const space = { driver: "d", volumeHandle: "h", at: `${all}/pv/dev/uid-1` };
  assert.deepEqual(stage.mounted("uid-1").get("v")?.persistent?.space, space);
  assert.deepEqual(storage.calls, [`stage h ${all}/staging/pv`, `publish h ${all}/publish/pv/uid-1`]);
  const [request] = storage.requests as readonly NodeStageVolumeRequest[];
  assert.deepEqual(request?.volumeCapability, { accessMode: { mode: 1 }, block: {}, mount: undefined });
  const link = `${rootDir}/pods/uid-1/volumeDevices/kubernetes.io~csi/pv`;
  assert.equal(await files.fs.readlink(link), `${all}/publish/pv/uid-1`);
  assert.match(files.text(`${all}/pv/data/vol_data.json`), /"driverName":"d".*"volumeHandle":"h"/);
  // A new process knows nothing of the pod except what is on the target.
  const next = bench.start();
  storage.registered.clear();
  const ending = assert.rejects(next.unmount("uid-1", never), {
    message:
      "kubernetes.io/csi: blockMapper.UnmapPodDevice failed: driver name d not found in the list of registered CSI drivers",
  });
  await longer(bench);
  await ending;
  assert.equal(await files.fs.readlink(link), `${all}/publish/pv/uid-1`);
  storage.registered.add("d");
  storage.calls.length = 0;
  await next.unmount("uid-1", never);
  assert.deepEqual(storage.calls, [`unpublish h ${all}/publish/pv/uid-1`, `unstage h ${all}/staging/pv`]);
  assert.deepEqual(files.mounted(), []);
  assert.deepEqual(files.tree(all), [`${all}/publish`, `${all}/staging`]);
});

test("reports a block volume that cannot be staged or published", async () => {
  const bench = bound({ volumeMode: "Block" });
  const { storage, clock, events } = bench;
  storage.failures.set("stage", new CodedError("invalid_argument", "no"));
  storage.failures.set("publish", new CodedError("invalid_argument", "not here"));
  const mounting = bench.start().mount(podWith([data], asDevice), never);
  for (let ms = 0; ms < 3_000; ms += 500) await clock.advance(500);
  await mounting;
  assert.deepEqual(events, [
    'Pod Warning FailedMapVolume: MapVolume.SetUpDevice failed for volume "pv" : no',
    'Pod Warning FailedMapVolume: MapVolume.MapPodDevice failed for volume "pv" : not here',
    `Pod Normal SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv" globalMapPath "${rootDir}/plugins/kubernetes.io/csi/volumeDevices/pv/dev"`,
    `Pod Normal SuccessfulMountVolume: MapVolume.MapPodDevice succeeded for volume "pv" volumeMapPath "${rootDir}/pods/uid-1/volumeDevices/kubernetes.io~csi"`,
  ]);
});

const inline: Volume = {
  name: "v",
  csi: { driver: "d", volumeAttributes: { size: "1" }, nodePublishSecretRef: { name: "key" } },
};
/** Hash of the pod's UID and the volume's name. */
const inlineHandle = "csi-c6b9fee9f58dbcf8514714e33b3bef6c8d259821373330068f9524db0a81a80e";

test("an inline volume is published with a generated handle, never staged, and unpublished with the pod", async () => {
  const bench = volumeBench();
  const { storage } = bench;
  bench.setSecret("key", { password: "open" });
  const spec = { volumeLifecycleModes: ["Ephemeral"], podInfoOnMount: true };
  storage.objects.set("d", { metadata: { name: "d" }, spec });
  const stage = bench.start();
  await stage.mount(podWith([inline]), never);
  const own = directoryOf("csi", "v");
  assert.equal(stage.mounted("uid-1").get("v")?.hostPath, `${own}/mount`);
  assert.deepEqual(storage.calls, [`publish ${inlineHandle} ${own}/mount`]);
  const [request] = storage.requests as readonly NodePublishVolumeRequest[];
  assert.equal(request?.stagingTargetPath, "");
  assert.deepEqual(request.secrets, { password: "open" });
  assert.equal(request.volumeContext.size, "1");
  assert.equal(request.volumeContext["csi.storage.k8s.io/ephemeral"], "true");
  assert.match(bench.host.files.text(`${own}/vol_data.json`), /"volumeLifecycleMode":"Ephemeral"/);
  await stage.unmount("uid-1", never);
  assert.deepEqual(storage.calls.slice(1), [`unpublish ${inlineHandle} ${own}/mount`]);
  assert.deepEqual(bench.host.files.mounted(), []);
});

test("rejects inline volumes of a driver without a CSIDriver object", async () => {
  const bench = volumeBench();
  bench.storage.objects.clear();
  const giveUp = new AbortController();
  const mounting = bench.start().mount(podWith([inline]), giveUp.signal);
  await bench.clock.advance(100);
  giveUp.abort();
  await assert.rejects(mounting);
  assert.match(
    bench.events[0] ?? "",
    /MountVolume\.SetUp failed for volume "v" : .*volume mode "Ephemeral" not supported by driver d \(no CSIDriver object\)$/,
  );
});

test("passes requested service account tokens in the context or in secrets, and republishes", async () => {
  const bench = bound();
  const { storage, clock } = bench;
  const name = "csi.storage.k8s.io/serviceAccount.tokens";
  const spec = {
    attachRequired: false,
    requiresRepublish: true,
    tokenRequests: [{ audience: "b" }, { audience: "a", expirationSeconds: 600 }],
  };
  storage.objects.set("d", { metadata: { name: "d" }, spec });
  const stage = bench.start();
  await stage.mount(podWith([data]), never);
  const [, publish] = storage.requests as readonly NodePublishVolumeRequest[];
  const expirationTimestamp = new Date(clock.now() + 75_000).toISOString().replace(/\.\d+/, "");
  assert.deepEqual(JSON.parse(publish?.volumeContext[name] ?? ""), {
    a: { token: "token-2", expirationTimestamp },
    b: { token: "token-1", expirationTimestamp },
  });
  assert.deepEqual(bench.requests, [
    { audience: "b", expirationSeconds: 3_600 },
    { audience: "a", expirationSeconds: 600 },
  ]);
  storage.objects.set("d", { metadata: { name: "d" }, spec: { ...spec, serviceAccountTokenInSecrets: true } });
  storage.failures.set("publish", new CodedError("invalid_argument", "not now"));
  await clock.advance(90_000);
  assert.ok(storage.calls.filter((call) => call.startsWith("publish ")).length >= 2);
  const again = storage.requests.at(-1) as NodePublishVolumeRequest;
  assert.match(again.secrets[name] ?? "", /"a":\{"token":/);
  assert.equal(again.volumeContext[name], undefined);
  assert.equal(
    bench.host.files.mounted().some(({ path }) => path === `${published}/mount`),
    true,
    "a volume in use stays when it cannot be published again",
  );
  stage.stop();
});

test("a failed republish keeps the volume, which is unpublished at the pod's end, even if the driver mounts nothing", async () => {
  const bench = bound();
  const { storage, clock, host } = bench;
  storage.objects.set("d", { metadata: { name: "d" }, spec: { attachRequired: false, requiresRepublish: true } });
  const stage = bench.start();
  await stage.mount(podWith([data]), never);
  host.files.unmount(`${published}/mount`);
  storage.failures.set("publish", new CodedError("invalid_argument", "not now"));
  await clock.advance(90_000);
  assert.equal(storage.failures.size, 0);
  assert.ok(host.files.tree(published).includes(`${published}/mount`), "the pod's containers have it");
  storage.calls.length = 0;
  await stage.unmount("uid-1", never);
  assert.deepEqual(storage.calls, [`unpublish h ${published}/mount`, `unstage h ${staged}/globalmount`]);
  assert.deepEqual(host.files.tree(`${rootDir}/pods/uid-1`), []);
  stage.stop();
});

test("a failed restage after a restart keeps the volume, which is unstaged with the last pod, even if the driver mounts nothing", async () => {
  const bench = bound();
  const { storage, clock, host } = bench;
  await bench.start().mount(podWith([data]), never);
  for (const path of [`${published}/mount`, `${staged}/globalmount`]) host.files.unmount(path);
  const next = bench.start();
  await next.recover(never);
  storage.failures.set("stage", new CodedError("invalid_argument", "not now"));
  const giveUp = new AbortController();
  const mounting = next.mount(podWith([data]), giveUp.signal);
  await clock.advance(100);
  giveUp.abort();
  await assert.rejects(mounting);
  storage.calls.length = 0;
  await next.unmount("uid-1", never);
  assert.deepEqual(storage.calls, [`unpublish h ${published}/mount`, `unstage h ${staged}/globalmount`]);
  assert.deepEqual(host.files.tree(`${rootDir}/plugins/kubernetes.io/csi/d`), []);
  next.stop();
});
