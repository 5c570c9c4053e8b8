import assert from "node:assert/strict";
import { test } from "node:test";
import { CodedError } from "../../../src/lib/errors.ts";
import type { NodePublishVolumeRequest } from "../../../src/gen/csi.ts";
import type { Volume } from "../../../src/objects.ts";
import { aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { bound, data } from "./csi-bench.ts";
import { type Bench, podWith, rootDir, volumeBench } from "./volume-bench.ts";

const inline: Volume = { name: "v", csi: { driver: "d" } };
const asDevice = {
  containers: [aContainer("c", { volumeDevices: [{ name: "v", devicePath: "/dev/v" }] })],
};

test("an inline volume of an uninstalled driver fails because the driver is not registered", async () => {
  const bench = volumeBench();
  bench.storage.objects.clear();
  bench.storage.registered.clear();
  const giveUp = new AbortController();
  const mounting = bench.start().mount(podWith([inline]), giveUp.signal);
  await bench.clock.advance(100);
  giveUp.abort();
  await assert.rejects(mounting);
  assert.equal(
    bench.events[0],
    'Pod Warning FailedMount: MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: driver name d not found in the list of registered CSI drivers',
  );
});

test("with SELinux, marks volumes whose file system has no labels", async () => {
  const plain = bound();
  const stage = plain.start();
  await stage.mount(podWith([data]), never);
  assert.equal(stage.mounted("uid-1").get("v")?.unlabelled, undefined);
  const bench = bound();
  bench.host.files.put("/sys/fs/selinux/enforce", { data: "1" });
  const labelling = bench.start();
  await labelling.mount(podWith([data]), never);
  assert.equal(labelling.mounted("uid-1").get("v")?.unlabelled, true);
});

test("a block volume is published with its staging path even without staging; a missing secret has its own error text", async () => {
  const reference = { name: "key", namespace: "default" };
  const bench = bound({ volumeMode: "Block" }, { nodePublishSecretRef: reference });
  const { storage, clock, events } = bench;
  storage.capabilities.clear();
  const mounting = bench.start().mount(podWith([data], asDevice), never);
  await clock.advance(100);
  const why =
    'kubernetes.io/csi: failed to find the secret key in the namespace default with error: secret "key" not found';
  assert.deepEqual(events, [
    `Pod Warning FailedMapVolume: MapVolume.MapPodDevice failed for volume "pv" : kubernetes.io/csi: blockMapper.publishVolumeForBlock failed to get NodePublishSecretRef default/key: ${why}`,
  ]);
  bench.setSecret("key", {});
  await clock.advance(500);
  await mounting;
  const [request] = storage.requests as readonly NodePublishVolumeRequest[];
  assert.equal(request?.stagingTargetPath, `${rootDir}/plugins/kubernetes.io/csi/volumeDevices/staging/pv`);
});

test("a failed capability query is reported by the step that needs it", async () => {
  const asked = async (bench: Bench, volume: Volume, spec = {}) => {
    bench.storage.onCapabilities(() => Promise.reject(new CodedError("unavailable", "gone")));
    const giveUp = new AbortController();
    const mounting = bench.start().mount(podWith([volume], spec), giveUp.signal);
    await bench.clock.advance(100);
    giveUp.abort();
    await assert.rejects(mounting);
    return bench.events[0];
  };
  const own = volumeBench();
  own.storage.objects.set("d", { metadata: { name: "d" }, spec: { volumeLifecycleModes: ["Ephemeral"] } });
  assert.equal(
    await asked(own, inline),
    'Pod Warning FailedMount: MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetUpAt failed to determine if the node service has VOLUME_MOUNT_GROUP capability: gone',
  );
  assert.equal(
    await asked(bound({ volumeMode: "Block" }), data, asDevice),
    'Pod Warning FailedMapVolume: MapVolume.SetUpDevice failed for volume "pv" : kubernetes.io/csi: blockMapper.stageVolumeForBlock failed to check STAGE_UNSTAGE_VOLUME capability: gone',
  );
});
