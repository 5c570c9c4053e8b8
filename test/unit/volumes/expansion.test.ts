import assert from "node:assert/strict";
import { test } from "node:test";
import { type NodeExpandVolumeRequest, NodeServiceCapability_RPC_Type as Capability } from "../../../src/gen/csi.ts";
import { CodedError } from "../../../src/lib/errors.ts";
import type { PersistentVolumeClaim, Volume } from "../../../src/objects.ts";
import { decideExpansion } from "../../../src/volumes/persistent/expansion.ts";
import { aContainer } from "../../fakes/pods.ts";
import { never } from "../../fakes/signals.ts";
import { bound, claimOf, data, expansions, grow, metadata, nodeName, pending, started } from "./expansion-bench.ts";
import { directoryOf, podWith, rootDir } from "./volume-bench.ts";

/** SHA-256 of `h`. */
const sum = "aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123";
const staged = `${rootDir}/plugins/kubernetes.io/csi/d/${sum}/globalmount`;
const published = `${directoryOf("csi", "pv")}/mount`;
const expanded = `expand h ${published}`;

const done = 'FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" node';
const finishedPatch = {
  metadata: { resourceVersion: "7" },
  status: {
    capacity: { storage: "2Gi" },
    allocatedResourceStatuses: { storage: null },
    conditions: [{ type: "FileSystemResizePending", $patch: "delete" }],
  },
};
const begunPatch = {
  metadata: { resourceVersion: "7" },
  status: { allocatedResourceStatuses: { storage: "NodeResizeInProgress" } },
};
const verdicts: readonly (readonly [what: string, claim: PersistentVolumeClaim, verdict: string])[] = [
  ["is in NodeResizePending", claimOf(pending), "expand"],
  ["is in NodeResizeInProgress", claimOf({ allocatedResourceStatuses: { storage: "NodeResizeInProgress" } }), "expand"],
  [
    "is in ControllerResizeInProgress",
    claimOf({ allocatedResourceStatuses: { storage: "ControllerResizeInProgress" } }),
    "wait",
  ],
  ["is in NodeResizeInfeasible", claimOf({ allocatedResourceStatuses: { storage: "NodeResizeInfeasible" } }), "wait"],
  ["has no resize status", claimOf(), "wait"],
  ["has the target size", claimOf({ capacity: { storage: "2Gi" } }), "done"],
  [
    "has the target size and is shared by nodes",
    claimOf({ capacity: { storage: "2048Mi" } }, { accessModes: ["ReadWriteMany"] }),
    "again",
  ],
];
for (const [what, claim, verdict] of verdicts)
  test(`the decision for a claim that ${what} is "${verdict}"`, () =>
    assert.equal(decideExpansion(claim, "2Gi"), verdict));

test("expansion of a shared claim without required node expansion ends with the controller's part", () => {
  const claim = claimOf({ capacity: { storage: "2Gi" } }, { accessModes: ["ReadWriteMany"] });
  const annotations = { "volume.kubernetes.io/node-expansion-not-required": "true" };
  assert.equal(decideExpansion({ ...claim, metadata: { ...metadata, annotations } }, "2Gi"), "done");
});

test("expands a volume in use once per node, and patches its claim", async () => {
  const bench = bound({ mountOptions: ["noatime"] });
  const { stage, pass } = await started(bench);
  await stage.mount(podWith([data], nodeName, { uid: "uid-2", name: "other" }), never);
  await pass();
  assert.deepEqual(expansions(bench), []);
  grow(bench);
  await pass();
  assert.deepEqual(expansions(bench), [expanded]);
  const { volumePath, stagingTargetPath, capacityRange, volumeCapability } = bench.storage.requests.at(
    -1,
  ) as NodeExpandVolumeRequest;
  assert.deepEqual([volumePath, stagingTargetPath], [published, staged]);
  assert.deepEqual(capacityRange, { requiredBytes: 2n ** 31n, limitBytes: 0n });
  assert.deepEqual(volumeCapability, {
    accessMode: { mode: 1 },
    block: undefined,
    mount: { fsType: "xfs", mountFlags: ["noatime"], volumeMountGroup: "" },
  });
  assert.deepEqual(bench.patches, [begunPatch, finishedPatch]);
  assert.deepEqual(bench.events, [`Pod Normal ${done}`, `PersistentVolumeClaim Normal ${done}`]);
  await pass();
  await stage.mount(podWith([data], nodeName, { uid: "uid-2", name: "other" }), never);
  await pass();
  assert.equal(expansions(bench).length, 1);
});

test("passes secrets to the driver; a missing one is reported", async () => {
  const nodeExpandSecretRef = { name: "key", namespace: "default" };
  const bench = bound({ csi: { driver: "d", volumeHandle: "h", nodeExpandSecretRef } });
  const { pass } = await started(bench);
  grow(bench);
  await pass();
  const why =
    'expander.NodeExpand failed to get NodeExpandSecretRef default/key: kubernetes.io/csi: failed to find the secret key in the namespace default with error: secret "key" not found';
  assert.deepEqual(bench.events, [
    `Pod Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv" : ${why}`,
  ]);
  bench.setSecret("key", { password: "open" });
  await bench.clock.advance(500);
  assert.deepEqual((bench.storage.requests.at(-1) as NodeExpandVolumeRequest).secrets, { password: "open" });
  assert.equal(bench.claims.get("data")?.status?.capacity?.storage, "2Gi");
  assert.deepEqual(bench.claims.get("data")?.status?.conditions, []);
});

test("expands a volume that was resized while unused, before a pod gets it", async () => {
  const bench = bound();
  grow(bench);
  const { pass } = await started(bench);
  assert.deepEqual(bench.storage.calls, [`stage h ${staged}`, `publish h ${published}`, expanded]);
  assert.deepEqual(bench.patches, [begunPatch, finishedPatch]);
  await pass();
  assert.equal(expansions(bench).length, 1, "it is not expanded again once it is in use");
});

test("a pod waits while expansion during mounting fails, and unmounts the volume at its end", async () => {
  const bench = bound();
  grow(bench);
  bench.storage.failures.set("expand", new CodedError("unknown", "rpc error: code = Internal desc = no"));
  const stage = bench.start();
  const giveUp = new AbortController();
  const mounting = stage.mount(podWith([data]), giveUp.signal);
  await bench.clock.advance(0);
  const why = "Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = no";
  assert.deepEqual(bench.events, [
    `Pod Warning FailedMount: MountVolume.Setup failed while expanding volume for volume "pv" : ${why}`,
  ]);
  const [condition] =
    bench.claims.get("data")?.status?.conditions?.filter(({ type }) => type === "NodeResizeError") ?? [];
  assert.equal(condition?.message, `failed to expand pvc with ${why}`);
  giveUp.abort();
  await assert.rejects(mounting);
  await stage.unmount("uid-1", never);
  assert.deepEqual(bench.storage.calls.slice(-2), [`unpublish h ${published}`, `unstage h ${staged}`]);
});

test("expands a block volume by its target path; a failure is reported as a MapVolume step", async () => {
  const bench = bound({ volumeMode: "Block" });
  grow(bench);
  bench.storage.failures.set("expand", new CodedError("unknown", "rpc error: code = Internal desc = no"));
  const container = aContainer("c", { volumeDevices: [{ name: "v", devicePath: "/dev/v" }] });
  const mounting = bench.start().mount(podWith([data], { containers: [container] }), never);
  await bench.clock.advance(500);
  await mounting;
  const why = "Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = no";
  assert.equal(
    // After two events of the mapping.
    bench.events[2],
    `Pod Warning FailedMapVolume: MapVolume.MarkVolumeAsMounted failed while expanding volume for volume "pv" : ${why}`,
  );
  const all = `${rootDir}/plugins/kubernetes.io/csi/volumeDevices`;
  const { volumePath, stagingTargetPath, volumeCapability } = bench.storage.requests.at(-1) as NodeExpandVolumeRequest;
  assert.deepEqual([volumePath, stagingTargetPath], [`${all}/publish/pv/uid-1`, `${all}/staging/pv`]);
  assert.deepEqual(volumeCapability, { accessMode: { mode: 1 }, block: {}, mount: undefined });
});

test("retries failures with back-off, and reports an infeasible expansion", async () => {
  const bench = bound();
  const { pass } = await started(bench);
  grow(bench);
  const fail = (code: CodedError["code"], text: string) =>
    bench.storage.failures.set("expand", new CodedError(code, `rpc error: code = ${text} desc = no`));
  fail("unknown", "Internal");
  await pass();
  fail("deadline_exceeded", "DeadlineExceeded");
  await bench.clock.advance(500);
  fail("invalid_argument", "OutOfRange");
  await bench.clock.advance(1_000);
  assert.equal(expansions(bench).length, 3);
  assert.equal(bench.events.length, 3);
  assert.match(bench.events[2] ?? "", /NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = no$/);
  const { status } = bench.claims.get("data") ?? {};
  assert.equal(status?.allocatedResourceStatuses?.storage, "NodeResizeInfeasible");
  await bench.clock.advance(60_000);
  assert.equal(expansions(bench).length, 3, "an infeasible expansion is left to the control plane");
  grow(bench, { ...pending, allocatedResources: { storage: "1500Mi" } }, "1500Mi");
  await bench.clock.advance(10_000);
  assert.equal(bench.claims.get("data")?.status?.capacity?.storage, "1500Mi");
});

test("gives up a failed size once it is no longer requested", async () => {
  const bench = bound();
  const { pass } = await started(bench);
  grow(bench);
  bench.claims.set("data", claimOf(pending, { resources: { requests: { storage: "3Gi" } } }));
  for (let tried = 0; tried < 2; tried += 1) {
    bench.storage.failures.set("expand", new CodedError("unknown", "no"));
    if (tried === 0) await pass();
    else await bench.clock.advance(500);
  }
  assert.equal(bench.claims.get("data")?.status?.allocatedResourceStatuses?.storage, "NodeResizeInfeasible");
});

test("does not retry a driver without online expansion while the volume is in use", async () => {
  const bench = bound();
  const { stage, pass } = await started(bench);
  grow(bench);
  bench.storage.failures.set("expand", new CodedError("failed_precondition", "in use"));
  for (let passed = 0; passed < 3; passed += 1) await pass();
  assert.equal(expansions(bench).length, 1);
  assert.deepEqual(bench.events, []);
  await stage.unmount("uid-1", never);
  await stage.mount(podWith([data], {}, { uid: "uid-2", name: "next" }), never);
  assert.equal(expansions(bench).length, 2);
});

test("an unregistered driver is retried without a failure; one without expansion support is a failure", async () => {
  const bench = bound();
  const { pass } = await started(bench);
  bench.storage.registered.clear();
  grow(bench);
  await pass();
  assert.equal(
    bench.events[0],
    'Pod Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv" : driver name d not found in the list of registered CSI drivers',
  );
  assert.deepEqual(
    bench.claims.get("data")?.status?.conditions?.map(({ type }) => type),
    ["FileSystemResizePending"],
  );
  bench.storage.registered.add("d");
  bench.storage.capabilities.delete(Capability.EXPAND_VOLUME);
  await bench.clock.advance(500);
  assert.match(bench.events[1] ?? "", /: NodeExpand is not supported by the CSI driver d$/);
  bench.storage.capabilities.add(Capability.EXPAND_VOLUME);
  await bench.clock.advance(1_000);
  assert.equal(bench.claims.get("data")?.status?.capacity?.storage, "2Gi");
});

test("reads a claim again after a conflict", async () => {
  const bench = bound();
  const { pass } = await started(bench);
  grow(bench);
  const { patch } = bench;
  bench.patch = async () => {
    bench.patch = patch;
    throw new CodedError("conflict", "the object has been modified");
  };
  await pass();
  assert.equal(
    bench.events[0],
    'Pod Warning VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv" : patchPVCStatus failed to patch PVC "data": the object has been modified',
  );
  await bench.clock.advance(500);
  assert.deepEqual(expansions(bench), [expanded]);
});

test("resumes after a restart between the driver's response and the claim's patch", async () => {
  const bench = bound();
  const { pass } = await started(bench);
  grow(bench);
  const { patch } = bench;
  let patched = 0;
  bench.patch = async (...given) => (++patched > 1 ? new Promise<never>(() => {}) : patch(...given));
  await pass();
  assert.equal(bench.claims.get("data")?.status?.allocatedResourceStatuses?.storage, "NodeResizeInProgress");
  bench.patch = patch;
  await bench.start().mount(podWith([data], nodeName), never);
  assert.equal(expansions(bench).length, 2);
  const { status } = bench.claims.get("data") ?? {};
  assert.deepEqual([status?.capacity, status?.allocatedResourceStatuses], [{ storage: "2Gi" }, {}]);
});

test("notices the expansion of a shared volume by another node", async () => {
  const bench = bound({ accessModes: ["ReadWriteMany"] });
  bench.claims.set("data", claimOf({}, { accessModes: ["ReadWriteMany"] }));
  const { pass } = await started(bench);
  grow(bench, { capacity: { storage: "2Gi" }, allocatedResources: { storage: "2Gi" } });
  await pass();
  await pass();
  assert.deepEqual([expansions(bench), bench.patches], [[expanded], []]);
});

test("does not expand a read-only claim, and the pod starts", async () => {
  const bench = bound();
  grow(bench);
  const volume: Volume = { name: "v", persistentVolumeClaim: { claimName: "data", readOnly: true } };
  const stage = bench.start();
  await stage.mount(podWith([volume]), never);
  await bench.clock.advance(10_000);
  await stage.mount(podWith([volume]), never);
  assert.deepEqual([expansions(bench), bench.patches], [[], []]);
  const why =
    'FileSystemResizeFailed: MountVolume.NodeExpandVolume failed for volume "pv" requested read-only file system';
  assert.deepEqual(bench.events, [`Pod Warning ${why}`, `PersistentVolumeClaim Warning ${why}`]);
});

test("reads the claim of idle pods at most every five seconds, shared by all pods", async () => {
  const bench = bound();
  const { stage, pod } = await started(bench);
  let reads = 0;
  const { get } = bench.claims;
  bench.claims.get = (name) => {
    reads += 1;
    return get.call(bench.claims, name);
  };
  for (let passed = 0; passed < 10; passed += 1) {
    await stage.mount(pod, never);
    await bench.clock.advance(1_000);
  }
  assert.equal(reads, 2);
});
