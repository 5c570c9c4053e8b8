import assert from "node:assert/strict";
import { test } from "node:test";
import type { NodeStageVolumeRequest } from "../../../src/gen/csi.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import { attachmentName } from "../../../src/volumes/persistent/csi-attachment.ts";
import { never } from "../../fakes/signals.ts";
import { bound, data, longer } from "./csi-bench.ts";
import { podWith } from "./volume-bench.ts";

test("waits for attachment, and reports the volume in use before", async () => {
  const bench = bound();
  const { storage, clock } = bench;
  storage.objects.clear();
  const stage = bench.start();
  await stage.recover(never);
  const mounting = stage.mount(podWith([data]), never);
  await clock.advance(300);
  const name = "kubernetes.io/csi/d^h";
  assert.deepEqual(bench.inUse, [name]);
  storage.status = { volumesInUse: [name], volumesAttached: [{ name, devicePath: "" }] };
  await clock.advance(100);
  // Hash of handle, driver and node.
  const attachment = "csi-c42cf57099d6443b605c16f111056170d3d4e01cedcbcbac71a93245953703cf";
  const why = `volume h has GET error for volume attachment ${attachment}: volumeattachments.storage.k8s.io "${attachment}" not found`;
  assert.deepEqual(bench.events, [
    `Pod Warning FailedMount: MountVolume.WaitForAttach failed for volume "pv" : ${why}`,
  ]);
  storage.attachments.set(attachment, {
    metadata: { name: attachment },
    spec: { attacher: "d", nodeName: "node", source: { persistentVolumeName: "pv" } },
    status: { attached: true, attachmentMetadata: { device: "one" } },
  });
  await clock.advance(1_000);
  await mounting;
  assert.deepEqual((storage.requests[0] as NodeStageVolumeRequest).publishContext, { device: "one" });
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.inUse, []);
});

test("stops waiting, and reports the volume as not in use, if the driver no longer requires attachment", async () => {
  const bench = bound();
  const { storage, clock } = bench;
  const own = storage.objects.get("d");
  assert.ok(own);
  storage.objects.clear();
  const stage = bench.start();
  await stage.recover(never);
  const mounting = stage.mount(podWith([data]), never);
  await clock.advance(3_000);
  assert.deepEqual([bench.inUse, storage.calls], [["kubernetes.io/csi/d^h"], []]);
  storage.objects.set("d", own);
  await clock.advance(3_000);
  await mounting;
  assert.deepEqual(bench.inUse, []);
  assert.equal(storage.calls.length, 2, "staged and published");
});

test("a volume that was never attached is no longer in use once its driver requires no attachment", async () => {
  const bench = bound();
  const { storage } = bench;
  const own = storage.objects.get("d");
  assert.ok(own);
  storage.objects.clear();
  const stage = bench.start();
  await stage.recover(never);
  const given = new AbortController();
  const mounting = assert.rejects(stage.mount(podWith([data]), given.signal));
  await bench.clock.advance(500);
  given.abort();
  await bench.clock.advance(500);
  await mounting;
  assert.deepEqual(bench.inUse, ["kubernetes.io/csi/d^h"]);
  storage.objects.set("d", own);
  const again = stage.mount(podWith([data]), never);
  await longer(bench);
  await again;
  assert.deepEqual(bench.inUse, []);
});

test("if the target is unreachable when the last pod ends, the volume stays in use until the target is back", async () => {
  const bench = bound();
  const { storage, host } = bench;
  storage.capabilities.clear();
  storage.objects.set("d", { metadata: { name: "d" }, spec: {} });
  const name = "kubernetes.io/csi/d^h";
  storage.attachments.set(attachmentName({ driver: "d", volumeHandle: "h" }, "node"), {
    metadata: { name: "attachment" },
    spec: { attacher: "d", nodeName: "node", source: { persistentVolumeName: "pv" } },
    status: { attached: true },
  });
  storage.status = { volumesAttached: [{ name, devicePath: "" }], volumesInUse: [name] };
  const stage = bench.start();
  await stage.recover(never);
  await stage.mount(podWith([data]), never);
  assert.deepEqual(bench.inUse, [name]);
  const { list } = host.fs;
  host.fs.list = async (path, signal) => {
    if (path.endsWith("/plugins/kubernetes.io/csi")) throw new CodedError("unavailable", "the link is cut");
    return list(path, signal);
  };
  await assert.rejects(stage.unmount("uid-1", never), { code: "unavailable" });
  assert.deepEqual(bench.inUse, [name]);
  host.fs.list = list;
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.inUse, []);
  stage.stop();
});
